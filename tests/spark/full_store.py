"""A local store whose disk is full, or fails once: what tasks meet, at the seam where they meet it.

A module of its own, so that Spark's workers can load it.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from klog.export.stores.local import LocalStore


class FullStore(LocalStore):
    """No byte of a file of messages finds room."""

    def open_output(self, path: str) -> BinaryIO:
        if "/part-" not in path:
            return super().open_output(path)
        super().open_output(path).close()
        return Path("/dev/full").open("wb", buffering=0)


class FailingStore(LocalStore):
    """The first file of messages that anyone opens here cannot be written; it stays behind."""

    def open_output(self, path: str) -> BinaryIO:
        file = super().open_output(path)
        try:
            (self.path / "_klog" / "failed").touch(exist_ok=False)
        except FileExistsError:
            return file
        file.write(b"half a file")
        raise OSError(5, "an attempt that fails")
