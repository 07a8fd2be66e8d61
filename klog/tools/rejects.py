"""The file of messages that were given up: JSON lines as `klog produce -i jsonl` takes them in again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from klog.errors import UsageError
from klog.render.jsonl import Content, to_line
from klog.tools.deliveries import Line


class Rejects:
    """Appends to a file; one that was not there and got nothing is gone at the end."""

    def __init__(self, path: Path, sources: Iterable[BinaryIO] = ()) -> None:
        """Opens the file. UsageError where it is one of the inputs, OSError where it cannot be written."""
        self.path = path
        self.count = 0
        self._was_there = path.exists()
        self._file = path.open("ab", buffering=0)
        mine = os.fstat(self._file.fileno())
        for source in sources:
            try:
                other = os.fstat(source.fileno())
            except (OSError, AttributeError):
                continue
            if (other.st_dev, other.st_ino) == (mine.st_dev, mine.st_ino):
                self.close()
                raise UsageError(f"{path} is an input, so rejected messages cannot be written to it")

    def write(self, topic: str, line: Line, content: Content, reason: str) -> None:
        """One message, with where it was and why it was given up; klog does not read it again."""
        where = {"source": line.source, "line": line.number, "error": reason}
        beside = json.dumps(where, ensure_ascii=False, separators=(",", ":"))
        self._file.write(
            f"{to_line(topic, content.partition, None, content)[:-1]},{beside[1:]}\n".encode(errors="replace")
        )
        self.count += 1

    def close(self) -> None:
        self._file.close()
        if not self.count and not self._was_there:
            self.path.unlink(missing_ok=True)
