"""Look-ups of one connection take turns, and end with it (rule P1)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from klog.errors import RequestTimedOut
from klog.net.connection import Connection
from klog.server import look_ups
from klog.server.executors import Executors
from klog.server.look_ups import LookUp
from klog.storage.lookup_budget import LookupBudget

WITHIN_S = 30
DISK = "/a"


class Peer:
    """As much of a connection as a look-up needs."""

    address = "10.0.0.1"

    def __init__(self) -> None:
        self.closed = False
        self.at_end: set[Callable[[], object]] = set()
        self.states: dict[object, Any] = {}

    def close(self) -> None:
        self.closed = True
        for act in list(self.at_end):
            act()


@pytest.fixture
def executors() -> Iterator[Executors]:
    found = Executors()
    yield found
    found.close()


async def ask(executors: Executors, peer: Peer | None, question: Callable[[LookupBudget], Any]) -> Any:
    with LookUp(executors, cast(Connection | None, peer)) as look_up:
        return await look_up.run(DISK, question)


async def test_a_connection_has_one_thread_at_most(executors: Executors) -> None:
    peer, go_on, begun = Peer(), threading.Event(), list[int]()

    def hold(number: int) -> int:
        begun.append(number)
        go_on.wait()
        return number

    asking = [asyncio.ensure_future(ask(executors, peer, lambda _, one=number: hold(one))) for number in range(5)]
    assert await ask(executors, Peer(), lambda _: "served") == "served", "another is served beside it"
    assert await ask(executors, None, lambda _: "served") == "served"
    assert begun == [0]
    go_on.set()
    assert await asyncio.gather(*asking) == [0, 1, 2, 3, 4]
    assert not peer.at_end


async def test_look_ups_end_with_their_connection(executors: Executors) -> None:
    peer, began, ended = Peer(), threading.Event(), threading.Event()
    never = list[str]()

    def walk(budget: LookupBudget) -> None:
        try:
            while True:
                budget.spend(1)
                began.set()
        finally:
            ended.set()

    running = asyncio.ensure_future(ask(executors, peer, walk))
    waiting = asyncio.ensure_future(ask(executors, peer, lambda _: never.append("begun")))
    assert await asyncio.to_thread(began.wait, WITHIN_S)
    peer.close()
    for one in (running, waiting):
        with pytest.raises(asyncio.CancelledError):
            await one
    assert await asyncio.to_thread(ended.wait, WITHIN_S), "the thread goes on for nobody"
    assert never == []
    assert await ask(executors, Peer(), lambda _: "served") == "served"


async def test_what_takes_longer_than_its_share_is_refused(
    executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_ups, "LOOK_UP_S", 0.01)
    monkeypatch.setattr(look_ups, "LOOK_UP_BYTES_MAX", 1 << 20)

    def for_ever(budget: LookupBudget) -> None:
        while True:
            budget.spend()

    def through_a_terabyte(budget: LookupBudget) -> None:
        for _ in range(1 << 20):
            budget.spend(1 << 20)

    for question in (for_ever, through_a_terabyte):
        with pytest.raises(RequestTimedOut):
            await ask(executors, Peer(), question)
    monkeypatch.setattr(look_ups, "REQUEST_S", -1)
    with pytest.raises(RequestTimedOut):
        await ask(executors, Peer(), lambda _: None)
