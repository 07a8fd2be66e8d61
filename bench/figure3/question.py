"""The online query: `klog sql`, asked of a live cluster again and again."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.figure3.background import Background
from bench.figure3.commands import online_query
from bench.figure3.part import Notes, Part

FIRST_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 1 << 20


class Question(Background):
    """``rows``: the latest answer, the columns' names first. ``asked``: how often there was one."""

    def __init__(self, bootstrap: str, every_s: float, folder: Path, notes: Notes) -> None:
        super().__init__("question")
        self._words = online_query(bootstrap)
        self._folder = folder
        self._notes = notes
        self.rows: Sequence[Sequence[str]] = ()
        self.asked = 0
        self.failed = 0
        self._every_s = every_s
        self._part: Part | None = None
        self._lock = threading.Lock()

    def stop(self) -> None:
        """A question that is being answered is given up."""
        with self._lock:
            self._end.set()
        if self._part is not None:
            self._part.stop(2.0)
        super().stop()

    def _work(self) -> None:
        while not self._end.wait(self._every_s if self.asked + self.failed else FIRST_S):
            said = bytearray()

            def take(chunk: bytes, said: bytearray = said) -> None:
                if len(said) < ANSWER_BYTES_MAX:
                    said.extend(chunk)

            with self._lock:
                if self._end.is_set():
                    return
                part = Part("online-query", self._words, self._folder, self._notes, output=take, again=False)
                self._part = part.start()
            while not part.wait(1.0):
                pass
            if part.code == 0:
                self.asked += 1
                self.rows = table_of(bytes(said))
            elif not self._end.is_set():
                self.failed += 1


def table_of(lines: bytes) -> list[list[str]]:
    """The rows of `klog sql -o jsonl` as texts, below the columns' names; [] where they are not that."""
    try:
        found = [dict(json.loads(line)) for line in lines.splitlines() if line.strip()]
    except (ValueError, TypeError):
        return []
    return [list(found[0]), *([str(value) for value in row.values()] for row in found)] if found else []
