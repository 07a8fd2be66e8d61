"""The broker: serves the partitions that it leads, and keeps its replicas."""
