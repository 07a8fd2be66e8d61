"""Answers of very many elements are encoded beside the event loop (rule P1)."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from klog.metrics import Measures
from klog.net.turns import Turns
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server import dispatch
from klog.server.dispatch import LOOP_ELEMENTS_MAX, ROUTES, Dispatcher, Route
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
            *(ApiKey.METADATA, 7, 7, lambda broker, request: later() if is_awaited else values, None, 7, 7),
            of_controller=False,
            refusal=None,
        )
        monkeypatch.setitem(ROUTES, ApiKey.METADATA, route)
        broker: Any = SimpleNamespace(executors=Executors(), measures=Measures())
        connection: Any = SimpleNamespace(peer="192.0.2.1:9", address="192.0.2.1", is_broker=False, turns=Turns())
        reply: Any = SimpleNamespace(send=sent.set_result)
        asked = codec.encode_request(
            codec.request(ApiKey.METADATA, 7, topics=None, allow_auto_topic_creation=False), 1, "c"
        )
        Dispatcher(broker).on_frame(connection, memoryview(asked)[4:], reply)
        async with asyncio.timeout(WITHIN_S):
            if aside:
                await begun.wait()  # the loop runs, and the answer is not there yet
                assert not sent.done()
                may_end.set()
            frame = await sent
            assert begun.is_set() == aside
        read = codec.decode_response(frame[4:], ApiKey.METADATA, 7)[1]
        assert len(read.topics) == topics
        broker.executors.close()

    asyncio.run(run())
