"""Copying ranges of partitions into others, exactly once: replay and mirror."""
