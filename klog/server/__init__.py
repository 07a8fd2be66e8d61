"""The broker: requests in, answers out, over partitions that it leads."""
