"""The front ends: `klog produce --audit` processes that are fed page views at a rate."""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.figure3 import commands
from bench.figure3.background import Background
from bench.figure3.part import Notes, Part, write_all

PAGES: Final = ("/", "/jobs", "/news", "/people", "/search", "/settings")
USERS: Final = 10_000
EVERY_S: Final = 0.02
"""Between two writes: the messages of so long go together."""
OWED_S: Final = 1.0
"""While a cluster is away its front ends take nothing; what is more than this behind is never sent."""
FIRST_RATE: Final = 100.0
"""Messages a second of all front ends together, until Spark has started."""
LAST_WORD_S: Final = 300.0
"""A front end that is closed waits for its cluster, then publishes its last counts."""


class FrontEnd:
    """One process, which stamps its messages as ``host`` and sends them to one cluster."""

    def __init__(self, cluster: str, number: int, address: str, folder: Path, notes: Notes) -> None:
        self.cluster = cluster
        self.host = f"front-{cluster}-{number}"
        self.has_closed = False
        words = commands.front_end(address, self.host)
        self.part = Part(self.host, words, folder, notes, stdin=subprocess.PIPE, again=False)
        self._rest = b""

    def start(self) -> FrontEnd:
        self.part.start()
        assert self.part.process.stdin is not None
        self._descriptor = self.part.process.stdin.fileno()
        os.set_blocking(self._descriptor, False)
        return self

    def feed(self, lines: bytes) -> bool:
        """False where it takes nothing now, or has ended; a line that is begun is ended by the next call."""
        try:
            if self._rest:
                self._rest = write_all(self._descriptor, self._rest, time.monotonic())
            if self._rest:
                return False
            self._rest = write_all(self._descriptor, lines, time.monotonic())
        except BrokenPipeError:
            return False
        return True

    def close(self) -> None:
        """What is begun is ended; then it sends what it has and publishes its last counts."""
        stdin = self.part.process.stdin
        assert stdin is not None
        self.has_closed = True
        try:
            self._rest = write_all(self._descriptor, self._rest, time.monotonic() + LAST_WORD_S)
            stdin.close()
        except BrokenPipeError:
            pass


class Traffic(Background):
    """Feeds front ends, all of them ``rate`` messages a second together, from a thread; few until `go_on`."""

    def __init__(self, front_ends: Sequence[FrontEnd], rate: float, seed: int) -> None:
        super().__init__("traffic")
        self._front_ends = front_ends
        self._rate = rate / len(front_ends)
        self._goes_on = threading.Event()
        self._draw = random.Random(seed)
        self.given = 0
        """Messages that front ends have taken."""

    def go_on(self) -> None:
        """At the whole rate from now on."""
        self._goes_on.set()

    def finish(self) -> bool:
        """No more of it, and each front end says its last word. False where one could not."""
        self.stop()
        for one in self._front_ends:
            one.close()
        deadline = time.monotonic() + LAST_WORD_S
        ended = [one.part.wait(max(0.0, deadline - time.monotonic())) for one in self._front_ends]
        return all(ended) and all(one.part.code == 0 for one in self._front_ends)

    def _work(self) -> None:
        """At its rate; after a pause what was missed is made up for `OWED_S` only."""
        owed = [0.0] * len(self._front_ends)
        last_s = time.monotonic()
        while not self._end.wait(EVERY_S):
            rate = self._rate if self._goes_on.is_set() else min(self._rate, FIRST_RATE / len(self._front_ends))
            now_s = time.monotonic()
            for number, one in enumerate(self._front_ends):
                owed[number] = min(owed[number] + (now_s - last_s) * rate, max(1.0, rate * OWED_S))
                count = int(owed[number])
                if count and one.feed(b"".join(self._line() for _ in range(count))):
                    owed[number] -= count
                    self.given += count
            last_s = now_s

    def _line(self) -> bytes:
        user = self._draw.randrange(USERS)
        view = {"page": self._draw.choice(PAGES), "user": user, "session": f"{self._draw.getrandbits(64):016x}"}
        return b"user-%d|%s\n" % (user, json.dumps(view).encode())
