"""Deletions from the start of logs, and threads that cut logs at their end: never both, and of the latter many."""

from __future__ import annotations

import asyncio
import threading

from klog.server.executors import Executors
from klog.server.replicas.deletions import Deletions
from klog.storage.log_dir import RetentionRun

DISK = "/a"


class Noted(RetentionRun):
    """A run with something to do that only says when."""

    def __init__(self, told: list[str]) -> None:
        super().__init__([(None, None)])  # type: ignore[list-item]
        self._told = told

    def persist(self) -> None:
        self._told.append("persist")

    def apply(self) -> None:
        self._told.append("apply")

    def unlink(self) -> int:
        self._told.append("unlink")
        return 0


async def test_cuts_run_side_by_side_and_deletions_wait_for_them() -> None:
    deletions, told = Deletions(Executors()), list[str]()
    may_end = asyncio.Event()

    async def cut(number: int) -> None:
        async with deletions.none_running(DISK):
            told.append(f"cut {number}")
            await may_end.wait()
            told.append(f"end {number}")

    cuts = [asyncio.create_task(cut(number)) for number in (1, 2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert told == ["cut 1", "cut 2"]
    deletion = asyncio.create_task(deletions.run(DISK, lambda: Noted(told)))
    await asyncio.sleep(0.01)
    late = asyncio.create_task(cut(3))
    await asyncio.sleep(0.01)
    assert told == ["cut 1", "cut 2"], "neither the deletion nor a cut that came after it"
    may_end.set()
    await asyncio.gather(*cuts, deletion, late)
    assert told == ["cut 1", "cut 2", "end 1", "end 2", "persist", "apply", "unlink", "cut 3", "end 3"]


async def test_a_cut_that_fails_holds_nobody_up() -> None:
    deletions, told = Deletions(Executors()), list[str]()
    try:
        async with deletions.none_running(DISK):
            raise OSError("the test says so")
    except OSError:
        pass
    await asyncio.wait_for(deletions.run(DISK, lambda: Noted(told)), 5)
    assert told == ["persist", "apply", "unlink"]


async def test_a_disk_that_hangs_holds_up_no_deletion_and_no_cut_of_another() -> None:
    executors = Executors()
    deletions, told, go_on = Deletions(executors), list[str](), threading.Event()

    class Hung(Noted):
        def persist(self) -> None:
            go_on.wait()

    hung = asyncio.create_task(deletions.run(DISK, lambda: Hung(told)))
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(30):
            await deletions.run("/b", lambda: Noted(told))
            async with deletions.none_running("/b"):
                told.append("cut")
        assert told == ["persist", "apply", "unlink", "cut"]
    finally:
        go_on.set()
        await hung
        executors.close()
