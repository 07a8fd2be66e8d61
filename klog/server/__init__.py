"""The broker: answers requests about the partitions that it leads, and keeps its replicas."""
