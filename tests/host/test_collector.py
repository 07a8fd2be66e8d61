"""Cycles among old objects are found, by the clock, whatever the interpreter's thresholds are."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from weakref import finalize, ref

import pytest

from klog.host import collector
from klog.host.collector import Collector


class Cycle:
    """Freed by the collector alone."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def interpreter() -> Iterator[None]:
    """As it was, for the other tests of this process."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_a_cycle_that_has_become_old_is_freed_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "EVERY_S", 0.01)
    monkeypatch.setattr(collector, "PAUSES", 1)

    async def run() -> None:
        running = Collector()
        running.start()
        old = Cycle()
        gc.collect()
        freed = asyncio.Event()
        finalize(old, freed.set)
        del old
        async with asyncio.timeout(60):
            await freed.wait()
        running.stop()

    asyncio.run(run())


def test_what_is_put_aside_is_looked_at_when_as_much_again_has_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "HOLDS_MAX_S", 0.0)
    one = Collector()
    one.collect()
    ended = Cycle()
    there = ref(ended)
    one.collect()  # it took longer than is allowed: what lives is put aside
    del ended
    one.collect()
    assert there() is not None, "this costs what is new, and no more"
    assert gc.get_freeze_count() > 0
    kept = [[number] for number in range(2 * gc.get_freeze_count())]
    for _ in range(2):
        one.collect()
    assert there() is None
    assert kept
