"""How cost grows: curves of klog and Kafka side by side, each point a real run."""
