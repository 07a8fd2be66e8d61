"""Requests and answers of very many elements are decoded and encoded beside the event loop (rule P1)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from klog.net.turns import Turns
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.security.principal import ANONYMOUS
from klog.server import dispatch
from klog.server.dispatch import FORWARDED_ELEMENTS_MAX, LOOP_ELEMENTS_MAX, Dispatcher, OpenRequests, Route
from klog.server.executors import Executors
from klog.server.request_slots import LONG_MAX, LONG_OF_ADDRESS_MAX, OF_ADDRESS, LongRequests
from klog.server.throttling import MeteredReply
from tests.rows import each

WITHIN_S = 30.0


def answer(topics: int, partitions: int) -> dict[str, Any]:
    one = {
        "error_code": 0,
        "partition_index": 0,
        "leader_id": 1,
        "leader_epoch": 0,
        "replica_nodes": (1,),
        "isr_nodes": (1,),
        "offline_replicas": (),
    }
    named = [
        {"error_code": 0, "name": f"t{number}", "is_internal": False, "partitions": [one] * partitions}
        for number in range(topics)
    ]
    return {"brokers": [], "cluster_id": "c", "controller_id": 1, "topics": named}


class Stage:
    """A dispatcher with one route, a connection of a peer, and a codec whose work in threads waits for a signal."""

    def __init__(
        self, handle: Callable[[Any], Any], *, is_broker: bool = False, forwarding: Any = None, waits: bool = False
    ) -> None:
        """With ``forwarding`` only the controller, which is another broker, can carry the request out."""
        self.loop = asyncio.get_running_loop()
        self.begun = asyncio.Event()
        """Set when a thread works."""
        self.may_end = threading.Event()
        self.sent: asyncio.Future[bytes] = self.loop.create_future()
        self.steps: list[str] = []
        self.closed = asyncio.Event()
        self.executors = Executors()
        self._loop_thread = threading.get_ident()
        self._reply: Any = SimpleNamespace(send=self._send)
        self.open_requests = OpenRequests()
        self.connection: Any = SimpleNamespace(
            peer="192.0.2.1:9",
            client_id=None,
            principal=ANONYMOUS,
            address="192.0.2.1",
            is_broker=is_broker,
            turns=Turns(),
            pause_reading=lambda size_bytes: self.steps.append("paused"),
            resume_reading=lambda: self.steps.append("resumed"),
            close=self._close,
            taken=self._taken,
            at_end=set(),
            closed=False,
            received_s=0.0,
            sending=[],
        )
        route = Route(*(ApiKey.METADATA, 7, 7, handle, 7, 7), of_controller=forwarding is not None, waits=waits)
        self._dispatcher = Dispatcher(
            {ApiKey.METADATA: route},
            executors=self.executors,
            meters={},
            open_requests=self.open_requests,
            forwarding=forwarding,
        )

    def _send(self, answer: bytes) -> None:
        self.steps.append("answered")
        self.sent.set_result(answer)

    async def _taken(self) -> None:
        self.steps.append("taken")

    def _close(self, reason: str | None) -> None:
        self.steps.append("closed")
        self.closed.set()

    def slowed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which in a thread other than the loop's ends only after `may_end`."""

        def slow(*arguments: Any) -> Any:
            if threading.get_ident() != self._loop_thread:
                self.loop.call_soon_threadsafe(self.begun.set)
                assert self.may_end.wait(WITHIN_S)
            return function(*arguments)

        return slow

    def ask(self, topics: list[dict[str, Any]] | None, *, missing_bytes: int = 0) -> bytearray:
        """Hand a Metadata request, of which the last bytes are missing, to the dispatcher. Returns its buffer."""
        asked = codec.encode_request(
            codec.request(ApiKey.METADATA, 7, topics=topics, allow_auto_topic_creation=False), 1, "c"
        )
        frame = bytearray(memoryview(asked)[4 : len(asked) - missing_bytes])
        self._dispatcher.on_frame(self.connection, memoryview(frame), self._reply)
        return frame


def long_request(topics: int) -> list[dict[str, Any]]:
    return [{"name": f"topic-{number:010}"} for number in range(topics)]


@each(
    ("topics", "partitions", "aside"),
    [(LOOP_ELEMENTS_MAX + 1, 0, True), (1, LOOP_ELEMENTS_MAX, True), (1, 1, True), (10, 10, False)],
    ids=["topics", "partitions", "replicas", "few"],
)
@each("is_awaited", [False, True], ids=["at once", "later"])
async def test_the_loop_goes_on_while_a_long_answer_is_encoded(
    monkeypatch: pytest.MonkeyPatch, topics: int, partitions: int, aside: bool, is_awaited: bool
) -> None:
    values = answer(topics, partitions)
    if (topics, partitions) == (1, 1):
        values["topics"][0]["partitions"][0]["replica_nodes"] = tuple(range(LOOP_ELEMENTS_MAX + 1))

    async def later() -> dict[str, Any]:
        return values

    stage = Stage(lambda request: later() if is_awaited else values)
    monkeypatch.setattr(dispatch.codec, "encode_response", stage.slowed(codec.encode_response))
    stage.ask(None)
    async with asyncio.timeout(WITHIN_S):
        if aside:
            await stage.begun.wait()  # the loop runs, and the answer is not there yet
            assert not stage.sent.done()
            stage.may_end.set()
        frame = await stage.sent
        assert stage.begun.is_set() == aside
    read = codec.decode_response(frame[4:], ApiKey.METADATA, 7)[1]
    assert len(read.topics) == topics
    stage.executors.close()


@each(("topics", "is_broker", "aside"), [(5_000, False, True), (5_000, True, False), (3, False, False)])
async def test_the_loop_goes_on_while_a_long_request_is_decoded(
    monkeypatch: pytest.MonkeyPatch, topics: int, is_broker: bool, aside: bool
) -> None:
    """Brokers' own requests are decoded at once: none of them waits for a thread that strangers keep busy."""

    def handle(request: Any) -> dict[str, Any]:
        stage.steps.append(f"handled {len(request.entity.topics)}")
        return answer(1, 1)

    stage = Stage(handle, is_broker=is_broker)
    monkeypatch.setattr(dispatch.codec, "decode_body", stage.slowed(codec.decode_body))
    frame = stage.ask(long_request(topics))
    async with asyncio.timeout(WITHIN_S):
        if aside:
            frame[:] = bytes(len(frame))  # the buffer is the next request's now
            await stage.begun.wait()
            assert stage.steps == ["paused"] and not stage.sent.done()
            stage.may_end.set()
        await stage.sent
    assert stage.begun.is_set() == aside
    steps = ["paused", f"handled {topics}", "answered", "resumed"]
    assert stage.steps == (steps if aside else [f"handled {topics}", "answered"])
    stage.executors.close()


async def test_after_a_long_request_that_is_malformed_no_other_is_read() -> None:
    stage = Stage(lambda request: answer(1, 1))
    stage.ask(long_request(5_000), missing_bytes=1)
    async with asyncio.timeout(WITHIN_S):
        await stage.closed.wait()
    assert stage.steps == ["paused", "closed"] and not stage.sent.done()
    stage.executors.close()


class Forwarding:
    """To a controller that has a long answer to everything."""

    def __init__(self) -> None:
        self.asked = 0

    def is_needed(self, client_id: str | None) -> bool:
        return True

    async def ask(self, entity: Any, actor: Any) -> Any:
        self.asked += 1
        return codec.response(ApiKey.METADATA, 7, **answer(3_000, 1))


@each(("topics", "is_forwarded"), [(3, True), (5_000, True), (FORWARDED_ELEMENTS_MAX + 1, False)])
async def test_the_loop_goes_on_while_a_request_is_forwarded(
    monkeypatch: pytest.MonkeyPatch, topics: int, is_forwarded: bool
) -> None:
    """A very long one is not: it would be encoded and decoded once more, on the loops of two brokers."""
    forwarding = Forwarding()
    stage = Stage(lambda request: answer(2, 1), forwarding=forwarding)
    monkeypatch.setattr(dispatch.codec, "encode_response", stage.slowed(codec.encode_response))
    stage.ask(long_request(topics))
    async with asyncio.timeout(WITHIN_S):
        if is_forwarded:
            await stage.begun.wait()
            stage.may_end.set()
        frame = await stage.sent
    read = codec.decode_response(frame[4:], ApiKey.METADATA, 7)[1]
    assert (forwarding.asked, len(read.topics)) == ((1, 3_000) if is_forwarded else (0, 2))
    stage.executors.close()


@each(
    ("topics", "is_broker", "waits", "is_paused"),
    [
        (300, False, False, True),
        (10, False, False, True),
        (10, False, True, False),  # a member of a group waits, and its heartbeats go on
        (300, False, True, True),
        (300, True, False, False),
    ],
)
async def test_while_a_request_waits_no_other_of_its_connection_is_read(
    topics: int, is_broker: bool, waits: bool, is_paused: bool
) -> None:
    """Else one connection could have 500 of them in hand."""
    may_answer = asyncio.Event()

    async def later() -> dict[str, Any]:
        await may_answer.wait()
        return answer(1, 1)

    stage = Stage(lambda request: later(), is_broker=is_broker, waits=waits)
    stage.ask(long_request(topics))
    assert stage.steps == (["paused"] if is_paused else [])
    may_answer.set()
    async with asyncio.timeout(WITHIN_S):
        await stage.open_requests.drain(WITHIN_S)
    assert stage.steps == (["paused", "answered", "resumed"] if is_paused else ["answered"])
    stage.executors.close()


async def test_long_work_ends_with_its_connection() -> None:
    async def endless(request: Any) -> dict[str, Any]:
        share = request.share()
        while True:
            await share.yield_if_due()
            await asyncio.sleep(0)

    stage = Stage(endless)
    stage.ask(None)
    await asyncio.sleep(0)
    stage.connection.closed = True
    async with asyncio.timeout(WITHIN_S):
        await stage.open_requests.drain(WITHIN_S)
    assert stage.steps == ["paused"]
    stage.executors.close()


async def test_so_many_long_requests_are_in_hand() -> None:
    def peer(address: str) -> Any:
        return SimpleNamespace(address=address, at_end=set(), closed=False)

    requests, may_end, begun = LongRequests(), asyncio.Event(), list[str]()

    async def one(connection: Any) -> None:
        async with requests.in_hand(connection):
            begun.append(connection.address)
            await may_end.wait()

    async def ask(*connections: Any) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(one(connection)) for connection in connections]
        for _ in range(5):
            await asyncio.sleep(0)
        return tasks

    busy = [peer("192.0.2.1") for _ in range(LONG_OF_ADDRESS_MAX + 2)]
    tasks = await ask(*busy)
    assert begun == ["192.0.2.1"] * LONG_OF_ADDRESS_MAX
    tasks += await ask(peer("192.0.2.2"))
    assert begun[LONG_OF_ADDRESS_MAX:] == ["192.0.2.2"]
    tasks += await ask(*(peer(f"198.51.100.{number}") for number in range(LONG_MAX)))
    assert len(begun) == LONG_MAX
    for end in busy[-1].at_end:  # the connection of one that waits ends
        end()
    may_end.set()
    async with asyncio.timeout(WITHIN_S):
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in outcomes].count(True) == 1
    assert len(begun) == len(tasks) - 1 and not any(one.at_end for one in busy[:-1])


async def test_so_many_requests_of_an_address_are_in_hand_and_none_of_who_has_gone() -> None:
    begun, may_end = list[int](), asyncio.Event()

    async def act(request: Any) -> dict[str, Any]:
        begun.append(1)
        await may_end.wait()
        return answer(1, 1)

    stage = Stage(act)
    for _ in range(OF_ADDRESS + 5):
        stage.ask(None)
    assert stage.steps == ["paused"] * (OF_ADDRESS + 5)
    await _some_turns()
    assert len(begun) == OF_ADDRESS
    stage.connection.closed = True
    stage._reply.send = lambda _: None
    may_end.set()
    async with asyncio.timeout(WITHIN_S):
        await stage.open_requests.drain(WITHIN_S)
    await _some_turns()
    assert len(begun) == OF_ADDRESS
    stage.executors.close()


class Counted(MeteredReply):
    """Notes what is counted as its request's time."""

    def __init__(self, inner: Any, acts: list[str]) -> None:
        self._inner = inner
        self._acts = acts

    def measured(self, act: Callable[[], None]) -> Callable[[], None]:
        def counted() -> None:
            self._acts.append("begun")
            act()
            self._acts.append("counted")

        return counted

    def timed(self, rest: Any) -> Any:
        return rest

    def handled(self) -> None:
        pass

    def send(self, *parts: Any) -> None:
        self._inner.send(*parts)


async def test_a_request_that_waits_for_a_place_is_counted_when_it_begins() -> None:
    may_end, acts = asyncio.Event(), list[str]()

    async def later(request: Any) -> dict[str, Any]:
        await may_end.wait()
        return answer(1, 1)

    stage = Stage(later)
    stage._reply.send = lambda _: None
    stage._dispatcher.metering = SimpleNamespace(  # type: ignore[assignment]
        begin=lambda head, size, reply, connection: Counted(reply, acts)
    )
    for _ in range(OF_ADDRESS + 1):
        stage.ask(None)
    assert acts == []
    may_end.set()
    async with asyncio.timeout(WITHIN_S):
        await stage.open_requests.drain(WITHIN_S)
    await _some_turns()
    assert acts == ["begun", "counted"]
    stage.executors.close()


async def test_a_long_answer_that_must_wait_is_not_kept_but_made_again() -> None:
    made = 0

    def handle(request: Any) -> dict[str, Any]:
        nonlocal made
        made += 1
        return answer(LOOP_ELEMENTS_MAX + 1, 0)

    stage = Stage(handle)
    may_take, all_sent = asyncio.Event(), asyncio.Event()

    def send(_: bytes) -> None:
        stage.steps.append("answered")
        if stage.steps.count("answered") == LONG_OF_ADDRESS_MAX:
            all_sent.set()

    stage.connection.taken = may_take.wait
    stage._reply.send = send
    for _ in range(LONG_OF_ADDRESS_MAX):
        stage.ask(None)
    async with asyncio.timeout(WITHIN_S):
        await all_sent.wait()
    assert made == LONG_OF_ADDRESS_MAX
    stage.ask(None)  # nobody has taken the others yet
    await _some_turns()
    assert (made, stage.steps.count("answered")) == (LONG_OF_ADDRESS_MAX + 1, LONG_OF_ADDRESS_MAX)
    may_take.set()
    async with asyncio.timeout(WITHIN_S):
        await stage.open_requests.drain(WITHIN_S)
    assert (made, stage.steps.count("answered")) == (LONG_OF_ADDRESS_MAX + 2, LONG_OF_ADDRESS_MAX + 1)
    stage.executors.close()


async def _some_turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
