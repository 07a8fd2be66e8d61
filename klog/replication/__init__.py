"""A partition with its leader, its in-sync replicas and its high watermark."""
