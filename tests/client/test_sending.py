"""What becomes of a send, settled by hand: in any order, by several threads at once."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import _base as futures
from functools import partial
from types import FrameType
from typing import Any

import pytest

from klog.client import sending
from klog.client.sending import Place, SendingSet
from klog.errors import SendFailed, TimedOut
from tests.chance import seed_of
from tests.rows import each


class Answer:
    """librdkafka's word about a message that is in the log."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def partition(self) -> int:
        return self._offset % 3

    def offset(self) -> int:
        return self._offset


@each("threads", [1, 4])
@each("count", [1, 5, 200])
def test_a_set_is_finished_once_and_after_all_were_told(threads: int, count: int) -> None:
    told: list[Place | None] = []
    finished: list[int] = []
    begin = threading.Barrier(threads)
    one = SendingSet("topic", lambda error, place: told.append(place), threading.Condition(), count)
    one.add_done_callback(lambda _: finished.append(len(told)))
    order = random.Random(seed_of(f"settled by {threads}")).sample(range(count), count)

    def settle(share: list[int]) -> None:
        begin.wait(30)
        for index in share:
            one.delivered(index, None, Answer(100 + index))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(settle, [order[share::threads] for share in range(threads)]))
    assert finished == [count]
    assert one.result(0) == tuple(Place("topic", index % 3, index) for index in range(100, 100 + count))
    assert set(told) == set(one.result(0))


def test_a_set_of_which_some_failed_names_them_whatever_their_order() -> None:
    one = SendingSet("topic", lambda error, place: None, threading.Condition(), 3)
    one.failed(2, TimedOut("late"))
    one.delivered(1, None, Answer(7))
    assert not one.done()
    one.failed(0, TimedOut("later"))
    with pytest.raises(SendFailed, match=r"\b2 of 3\b.*later") as raised:
        one.result(0)
    assert sorted(raised.value.errors) == [0, 2]


# --- Those who watch while it is settled: the other thread comes at each step of the one's ---

BLOCKED_S = 0.01
"""After so long the other thread is taken to wait for a lock, and the one goes on."""

WAITING_S = 0.3
"""After so long the one is taken to wait for the other."""

STEPPED = {sending.__file__: "opcode", futures.__file__: "line"}


def meet(one: Callable[[], object], other: Callable[[], object], step: int) -> bool:
    """Runs ``one``, and ``other`` in a thread at that step of the one's; whether it came to that step."""
    steps = itertools.count()
    thread = threading.Thread(target=other)
    came = is_late = False

    def begin_late() -> None:
        nonlocal is_late
        is_late = True
        thread.start()

    waiting = threading.Timer(WAITING_S, begin_late)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal came
        stepped = STEPPED.get(frame.f_code.co_filename)
        frame.f_trace_opcodes = stepped == "opcode"
        if event == stepped and next(steps) == step and not is_late:
            waiting.cancel()
            came = True
            thread.start()
            thread.join(BLOCKED_S)
        return trace

    waiting.start()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        one()
    finally:
        sys.settrace(before)
        waiting.cancel()
        waiting.join()
    if thread.ident:
        thread.join(30)
        assert not thread.is_alive()
    return came


class Meeting:
    """A send that is settled, another one of the same producer, and who watches."""

    def __init__(self) -> None:
        shared = threading.Condition()
        self.sending, self.later = (sending.SendingOne("topic", None, shared) for _ in range(2))
        self.heard: list[bool] = []
        self.is_told = threading.Event()

    def settle(self) -> None:
        self.sending(None, Answer(7))
        self.is_told.wait(BLOCKED_S / 4)  # it is early to tell who waits for both
        self.later(None, Answer(8))

    def tell(self, is_right: bool) -> None:
        self.heard.append(is_right)
        self.is_told.set()

    def ask(self) -> None:
        self.tell(self.sending.result(30) == (Place("topic", 1, 7),))

    def add_callback(self) -> None:
        self.sending.add_done_callback(lambda done: self.tell(done is self.sending))

    def wait_for_both(self) -> None:
        self.tell(not futures.wait([self.sending, self.later], timeout=30).not_done)


@each("watch", [Meeting.ask, Meeting.add_callback, Meeting.wait_for_both])
@each("first", ["watch", "settle"])
def test_whoever_watches_while_it_is_settled_is_told_once(watch: Callable[[Meeting], None], first: str) -> None:
    for step in itertools.count():
        meeting = Meeting()
        one, other = meeting.settle, partial(watch, meeting)
        came = meet(one, other, step) if first == "settle" else meet(other, one, step)
        if not came:
            break
        assert meeting.heard == [True], f"at step {step}"
    assert step > 20
