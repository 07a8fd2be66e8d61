"""The pipeline on PySpark: the data source and the export."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klog.spark.committed import read_export
    from klog.spark.narrowing import where
    from klog.spark.progress import source_progress
    from klog.spark.short_errors import klog_errors

__all__ = ["klog_errors", "read_export", "source_progress", "where"]

_MODULES = {
    "klog_errors": "short_errors",
    "read_export": "committed",
    "source_progress": "progress",
    "where": "narrowing",
}


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for: most of what lies in this package is wanted without the rest."""
    if name in _MODULES:
        return getattr(import_module(f"klog.spark.{_MODULES[name]}"), name)
    raise AttributeError(name)
