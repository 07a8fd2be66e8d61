"""Exports that are tables of Iceberg or Delta Lake: `TableCommits` is what `klog.export.root` uses of them."""
