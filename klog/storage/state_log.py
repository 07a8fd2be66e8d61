"""The state-change log: ``state-change.log`` in a broker's first log dir that serves, one JSON object a line.

::

    {"ts": "2026-02-01T10:00:00.000Z", "broker": 1, "kind": "isr-shrunk", "topic": "t", "partition": 0, ...}

It shows afterwards what happened: `sort -m` merges the logs of several brokers by time. It is not a
source of truth, so nothing here is flushed, and a disk that fails costs lines and nothing else.
Rotated at FILE_BYTES_MAX: ``state-change.log.1`` is the youngest of KEPT_FILES older ones.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

_log = logging.getLogger(__name__)

FILE_NAME: Final = "state-change.log"
FILE_BYTES_MAX: Final = 10 * 1024 * 1024
KEPT_FILES: Final = 3
QUEUED_MAX: Final = 10_000
"""Lines that wait while the disk is slow: the state changes of one failover of a large cluster."""
CLOSE_WITHIN_S: Final = 2.0


class StateLog:
    """``write`` may be called from any thread and returns at once; the log's own thread writes the file."""

    def __init__(self, folder: str | os.PathLike[str], *, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        self.path = Path(folder) / FILE_NAME
        self.dropped = 0
        """The number of lines that were dropped."""
        self._file_bytes_max = file_bytes_max
        self._queue: queue.Queue[Mapping[str, Any] | None] = queue.Queue(QUEUED_MAX)
        self._file: IO[bytes] | None = None
        self._refused = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="state-log", daemon=True)
        self._thread.start()

    def write(self, entry: Mapping[str, Any]) -> None:
        """Queue one line for the thread that writes. Never waits, never raises."""
        try:
            if not self._closing:
                self._queue.put_nowait(entry)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write the waiting lines, unless the disk hangs, and close the file. Blocks; may be called twice."""
        if not self._closing:
            self._closing = True
            try:
                self._queue.put(None, timeout=CLOSE_WITHIN_S)
            except queue.Full:
                return
        self._thread.join(CLOSE_WITHIN_S)

    def _run(self) -> None:
        self._try_append([])  # creates the file even if no event ever follows
        while True:
            entries = [self._queue.get()]
            while not self._queue.empty():
                entries.append(self._queue.get())
            self._try_append([_line(entry) for entry in entries if entry is not None])
            if None in entries:
                self._let_go()
                return

    def _try_append(self, lines: list[bytes]) -> None:
        try:
            self._append(lines)
        except OSError as error:
            self.dropped += len(lines)
            self._let_go()
            if not self._refused:  # once, not once a line
                _log.warning("%s cannot be written: %s", self.path, error)
            self._refused = True

    def _append(self, lines: list[bytes]) -> None:
        file = self._opened()
        while lines:
            room = self._file_bytes_max - file.tell()
            taken, size = 0, 0
            for line in lines:
                if size + len(line) > room and (size or room < self._file_bytes_max):
                    break
                taken, size = taken + 1, size + len(line)
            if taken:
                file.write(b"".join(lines[:taken]))
                del lines[:taken]
                self._refused = False
            else:
                self._rotate()
                file = self._opened()

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
        return self._file

    def _rotate(self) -> None:
        self._let_go()
        for number in range(KEPT_FILES, 0, -1):
            older = self.path.with_name(f"{FILE_NAME}.{number}")
            newer = self.path.with_name(f"{FILE_NAME}.{number - 1}") if number > 1 else self.path
            if newer.exists():
                newer.replace(older)

    def _let_go(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.close()
            except OSError:
                pass


def _line(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":"), default=str, ensure_ascii=False).encode() + b"\n"
