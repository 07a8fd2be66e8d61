"""The broker's threads by purpose: what is full holds up only its own kind (rule P1)."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog.server
from klog.errors import RequestTimedOut
from klog.server.executors import Executors, Purpose

WITHIN_S = 30


@pytest.fixture
def executors() -> Iterator[Executors]:
    made = Executors()
    yield made
    made.close()


async def test_a_full_purpose_holds_up_no_other_and_a_hung_disk_no_other_disk(executors: Executors) -> None:
    go_on = threading.Event()
    held = [
        asyncio.ensure_future(executors.run_at("/a", Purpose.LOOK_UPS, go_on.wait))
        for _ in range(3 * Purpose.LOOK_UPS.threads)
    ]
    try:
        await asyncio.sleep(0)
        for purpose in Purpose:
            if purpose is not Purpose.LOOK_UPS:
                assert await executors.run_at("/a", purpose, lambda: "done") == "done"
        assert await executors.run_at("/b", Purpose.LOOK_UPS, lambda: "done") == "done"
        assert await executors.run(Purpose.LOOK_UPS, lambda: "done") == "done"
        assert not any(one.done() for one in held)
    finally:
        go_on.set()
    assert await asyncio.gather(*held) == [True] * len(held)


async def test_threads_are_few_named_and_daemons(executors: Executors) -> None:
    seen = set[threading.Thread]()
    both = threading.Barrier(Purpose.LOOK_UPS.threads)

    def look() -> None:
        seen.add(threading.current_thread())
        both.wait(WITHIN_S)

    for _ in range(10):
        await asyncio.gather(*(executors.run_at("/a", Purpose.LOOK_UPS, look) for _ in range(Purpose.LOOK_UPS.threads)))
    assert len(seen) == Purpose.LOOK_UPS.threads
    assert all(one.daemon and one.name.startswith("look-ups /a") for one in seen)


async def test_who_goes_away_while_waiting_is_never_begun(executors: Executors) -> None:
    go_on, begun = threading.Event(), list[int]()
    held = [asyncio.ensure_future(executors.run(Purpose.LOOK_UPS, go_on.wait)) for _ in range(Purpose.LOOK_UPS.threads)]
    waiting = [asyncio.ensure_future(executors.run(Purpose.LOOK_UPS, begun.append, one)) for one in (1, 2, 3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(*held, *waiting, return_exceptions=True)
    assert sorted(begun) == [1, 3]
    assert waiting[1].cancelled()


async def test_what_strangers_may_queue_is_bounded(executors: Executors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Purpose.LOOK_UPS, "waiting_max", 3)
    go_on = threading.Event()
    begun = [threading.Event() for _ in range(Purpose.LOOK_UPS.threads)]

    def hold(one: threading.Event) -> None:
        one.set()
        go_on.wait()

    held = [asyncio.ensure_future(executors.run(Purpose.LOOK_UPS, hold, one)) for one in begun]
    await asyncio.sleep(0)
    for one in begun:
        assert await asyncio.to_thread(one.wait, WITHIN_S)
    waiting = [asyncio.ensure_future(executors.run(Purpose.LOOK_UPS, int)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(RequestTimedOut, match="look-ups"):
        await executors.run(Purpose.LOOK_UPS, int)
    go_on.set()
    await asyncio.gather(*held, *waiting)


async def test_addresses_take_turns_and_who_has_most_gives_way(
    executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Purpose.UNPACKING, "waiting_max", 6)
    monkeypatch.setattr(Purpose.UNPACKING, "threads", 1)
    go_on, begun, done = threading.Event(), threading.Event(), list[str]()

    def hold() -> None:
        begun.set()
        go_on.wait()

    def of(whose: str, number: int) -> asyncio.Future[None]:
        run = executors.run_in_turn(whose, "", Purpose.UNPACKING, done.append, f"{whose}{number}")
        return asyncio.ensure_future(run)

    held = asyncio.ensure_future(executors.run(Purpose.UNPACKING, hold))
    await asyncio.sleep(0)
    assert await asyncio.to_thread(begun.wait, WITHIN_S)
    flood = [of("flood", number) for number in range(6)]
    await asyncio.sleep(0)
    others = [of("one", 0), of("two", 0)]
    await asyncio.sleep(0)
    for one in flood[4:]:
        with pytest.raises(RequestTimedOut, match=r"\b6\b"):
            await one
    go_on.set()
    await asyncio.gather(held, *flood[:4], *others)
    assert done == ["flood0", "one0", "two0", "flood1", "flood2", "flood3"]


async def test_an_error_comes_back_and_is_held_by_nothing(executors: Executors) -> None:
    class Big:
        pass

    def fail(it: Big) -> None:
        raise ValueError(id(it))

    gc.collect()
    gc.disable()
    try:
        big = Big()
        watched = weakref.ref(big)
        with pytest.raises(ValueError):
            await executors.run(Purpose.OTHER, fail, big)
        del big
        await executors.run(Purpose.OTHER, int)  # the thread has turned to something else
        assert watched() is None
    finally:
        gc.enable()


async def test_closing_cancels_what_waits_and_ends_the_threads(executors: Executors) -> None:
    go_on = threading.Event()
    threads = list[threading.Thread]()

    def hold() -> None:
        threads.append(threading.current_thread())
        go_on.wait()

    held = [asyncio.ensure_future(executors.run(Purpose.OTHER, hold)) for _ in range(Purpose.OTHER.threads)]
    waiting = asyncio.ensure_future(executors.run(Purpose.OTHER, int))
    await asyncio.sleep(0)
    executors.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    await asyncio.gather(*held)
    for one in threads:
        await asyncio.to_thread(one.join, WITHIN_S)
        assert not one.is_alive()


def test_the_broker_leaves_asyncios_own_threads_to_asyncio() -> None:
    folder = Path(klog.server.__file__).parent
    users = [
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if "to_thread(" in path.read_text() or "run_in_executor(None" in path.read_text()
    ]
    assert users == [], "use broker.executors (klog.server.executors), by purpose"
