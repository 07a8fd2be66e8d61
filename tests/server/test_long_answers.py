"""Answers of very many elements are encoded beside the event loop (rule P1)."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from klog.net.turns import Turns
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server import dispatch
from klog.server.dispatch import LOOP_ELEMENTS_MAX, Dispatcher, OpenRequests, Route
from klog.server.executors import Executors

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


@pytest.mark.parametrize(
    ("topics", "partitions", "aside"),
    [(LOOP_ELEMENTS_MAX + 1, 0, True), (1, LOOP_ELEMENTS_MAX, True), (10, 10, False)],
    ids=["topics", "partitions", "few"],
)
@pytest.mark.parametrize("is_awaited", [False, True], ids=["at once", "later"])
def test_the_loop_goes_on_while_a_long_answer_is_encoded(
    monkeypatch: pytest.MonkeyPatch, topics: int, partitions: int, aside: bool, is_awaited: bool
) -> None:
    values = answer(topics, partitions)

    async def later() -> dict[str, Any]:
        return values

    encode = codec.encode_response
    may_end = threading.Event()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop_thread = threading.get_ident()
        begun = asyncio.Event()
        sent: asyncio.Future[bytes] = loop.create_future()

        def slow(*arguments: Any) -> bytes:
            if threading.get_ident() != loop_thread:
                loop.call_soon_threadsafe(begun.set)
                assert may_end.wait(WITHIN_S)
            return encode(*arguments)

        monkeypatch.setattr(dispatch.codec, "encode_response", slow)
        route = Route(
            *(ApiKey.METADATA, 7, 7, lambda request: later() if is_awaited else values, None, 7, 7),
            of_controller=False,
            refusal=None,
        )
        executors = Executors()
        dispatcher = Dispatcher(
            {ApiKey.METADATA: route},
            executors=executors,
            meters={},
            open_requests=OpenRequests(),
            forwarding=cast(Any, None),
        )
        connection: Any = SimpleNamespace(peer="192.0.2.1:9", address="192.0.2.1", is_broker=False, turns=Turns())
        reply: Any = SimpleNamespace(send=sent.set_result)
        asked = codec.encode_request(
            codec.request(ApiKey.METADATA, 7, topics=None, allow_auto_topic_creation=False), 1, "c"
        )
        dispatcher.on_frame(connection, memoryview(asked)[4:], reply)
        async with asyncio.timeout(WITHIN_S):
            if aside:
                await begun.wait()  # the loop runs, and the answer is not there yet
                assert not sent.done()
                may_end.set()
            frame = await sent
            assert begun.is_set() == aside
        read = codec.decode_response(frame[4:], ApiKey.METADATA, 7)[1]
        assert len(read.topics) == topics
        executors.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("topics", "is_broker", "aside"), [(5_000, False, True), (5_000, True, False), (3, False, False)]
)
def test_the_loop_goes_on_while_a_long_request_is_decoded(
    monkeypatch: pytest.MonkeyPatch, topics: int, is_broker: bool, aside: bool
) -> None:
    """Brokers' own requests are decoded at once: none of them waits for a thread that strangers keep busy."""
    decode = codec.decode_body
    may_end = threading.Event()
    steps: list[str] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop_thread = threading.get_ident()
        begun = asyncio.Event()
        sent: asyncio.Future[bytes] = loop.create_future()

        def slow(*arguments: Any) -> Any:
            if threading.get_ident() != loop_thread:
                loop.call_soon_threadsafe(begun.set)
                assert may_end.wait(WITHIN_S)
            return decode(*arguments)

        def handle(request: Any) -> dict[str, Any]:
            steps.append(f"handled {len(request.entity.topics)}")
            return answer(1, 1)

        monkeypatch.setattr(dispatch.codec, "decode_body", slow)
        route = Route(*(ApiKey.METADATA, 7, 7, handle, None, 7, 7), of_controller=False, refusal=None)
        executors = Executors()
        dispatcher = Dispatcher(
            {ApiKey.METADATA: route},
            executors=executors,
            meters={},
            open_requests=OpenRequests(),
            forwarding=cast(Any, None),
        )
        connection: Any = SimpleNamespace(
            peer="192.0.2.1:9",
            address="192.0.2.1",
            is_broker=is_broker,
            turns=Turns(),
            pause_reading=lambda size_bytes: steps.append("paused"),
            resume_reading=lambda: steps.append("resumed"),
        )
        reply: Any = SimpleNamespace(send=sent.set_result)
        named = [{"name": f"topic-{number:010}"} for number in range(topics)]
        asked = codec.encode_request(
            codec.request(ApiKey.METADATA, 7, topics=named, allow_auto_topic_creation=False), 1, "c"
        )
        frame = bytearray(memoryview(asked)[4:])
        dispatcher.on_frame(connection, memoryview(frame), reply)
        async with asyncio.timeout(WITHIN_S):
            if aside:
                frame[:] = bytes(len(frame))  # the buffer is the next request's now
                await begun.wait()
                assert steps == ["paused"] and not sent.done()
                may_end.set()
            await sent
        assert begun.is_set() == aside
        assert steps == (["paused", f"handled {topics}", "resumed"] if aside else [f"handled {topics}"])
        executors.close()

    asyncio.run(run())
