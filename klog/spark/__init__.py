"""The pipeline on PySpark: the data source and the export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klog.spark.committed import read_export

__all__ = ["read_export"]


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for: most of what lies in this package is wanted without the rest."""
    if name == "read_export":
        from klog.spark.committed import read_export

        return read_export
    raise AttributeError(name)
