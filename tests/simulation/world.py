"""A world of one thread: an event queue, a clock that jumps from event to event, one seeded source of chance.

Nothing in it looks at the real clock, the order of a set of objects or of strings, or anything else that differs
between two runs of a seed: so the same seed does the same again, to the last line of the trace.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

TRACE_LINES_SHOWN = 120


class Violation(Exception):
    """Something happened that the rules forbid: which law, and what was seen."""

    def __init__(self, law: str, seen: str) -> None:
        super().__init__(f"{law}: {seen}")
        self.law = law
        self.seen = seen


class World:
    """Time in seconds from 0."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.draw = random.Random(seed)
        self.now = 0.0
        self.events = 0
        self.late_share = 0.005
        """Of all messages: those that others overtake by far."""
        self._queue: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._trace: list[tuple[float, str, tuple[Any, ...]]] = []

    def after(self, delay_s: float, act: Callable[..., object], *arguments: Any) -> None:
        self.events += 1
        heapq.heappush(self._queue, (self.now + delay_s, self.events, act, arguments))

    def run(self, until_s: float) -> None:
        queue = self._queue
        while queue and queue[0][0] <= until_s:
            self.now, _, act, arguments = heapq.heappop(queue)
            act(*arguments)
        self.now = until_s

    def say(self, words: str, *facts: Any) -> None:
        """A line of the trace; made into text only when somebody looks."""
        self._trace.append((self.now, words, facts))

    def story(self) -> list[str]:
        """The whole trace."""
        return [f"{at:9.4f}  {words % facts if facts else words}" for at, words, facts in self._trace]

    def delay_s(self) -> float:
        """How long a message is on its way: mostly a moment, now and then long enough to be overtaken."""
        chance = self.draw.random()
        if chance < self.late_share:
            return self.draw.random()
        return 0.0005 + chance * 0.003 if chance < 0.95 else self.draw.random() * 0.05


class Process:
    """One run of a program. What was on its way to it when it died is not done, while it is paused it waits."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self._waiting: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def after(self, delay_s: float, act: Callable[..., object], *arguments: Any) -> None:
        self.world.after(delay_s, self.do, act, arguments)

    def do(self, act: Callable[..., object], arguments: tuple[Any, ...] = ()) -> None:
        if not self.is_alive:
            return
        if self.is_paused:
            self._waiting.append((act, arguments))
            return
        act(*arguments)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """What came meanwhile is done now, in the order in which it came."""
        self.is_paused = False
        waiting, self._waiting = self._waiting, []
        for act, arguments in waiting:
            self.do(act, arguments)
