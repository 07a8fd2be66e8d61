"""Streams of messages computed by Spark: windowed counts, joins, and their results in topics and exports, exactly once.

`docs/streams.md` teaches it from a first program on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klog.streams.stream import Stream, Windows
    from klog.streams.streams import Streams

__all__ = ["Stream", "Streams", "Windows"]

_MODULES = {"Stream": "klog.streams.stream", "Windows": "klog.streams.stream", "Streams": "klog.streams.streams"}


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for, so that `klog stream list` does without the rest."""
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(name)
