"""Makes ``format("klog")`` known to Spark: it looks for ``DefaultSource`` in the module ``pyspark_<format>``."""

from klog.spark.source import KlogDataSource as DefaultSource

__all__ = ["DefaultSource"]
