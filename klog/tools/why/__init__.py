"""`klog status`: from a symptom to its first cause. ``gathering`` asks, once; ``causes`` decides, without I/O."""
