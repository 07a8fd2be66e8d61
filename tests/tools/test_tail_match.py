"""`tail --match`: topics by a regular expression, those that are there and those that come and go."""

from __future__ import annotations

import asyncio
import io

import pytest

from klog.admin.topics import create_topic, delete_topics, preview_deletion
from klog.client.cluster import Cluster
from klog.client.positions import parse_range
from klog.errors import UnknownTopicOrPartition
from klog.tools.options import ProduceOptions, TailOptions
from klog.tools.produce import produce
from klog.tools.tail import tail
from tests.broker_fixture import RunningBroker
from tests.tools.verbs import Arrivals, make_topic, read, send


def test_topics_by_their_names(broker: RunningBroker, topic: str) -> None:
    for name in ("a", "b", "bb"):
        make_topic(broker.bootstrap, f"{topic}.{name}")
        send(broker.bootstrap, f"{topic}.{name}", name.encode())

    def shown(match: str, *named: str) -> list[bytes]:
        found, _ = read(broker.bootstrap, list(named), match=match, offset=parse_range("start:end"))
        return sorted(found.split())

    assert shown(rf"{topic}\..") == [b"a", b"b"]
    assert shown(rf"{topic}\.b+", f"{topic}.a") == [b"a", b"b", b"bb"]
    assert shown(rf"{topic}\.b+", f"{topic}.b") == [b"b", b"bb"], "each once"
    assert shown(rf"!(?!{topic}\.).*|.*a") == [b"b", b"bb"]
    with pytest.raises(UnknownTopicOrPartition, match="matches"):
        shown(f"{topic}.nothing")


@pytest.mark.long("unsteady in whole runs: tests/unsteady.md")
def test_topics_come_and_go(broker: RunningBroker, topic: str) -> None:
    first, second = f"{topic}.1", f"{topic}.2"
    options = TailOptions(match=rf"{topic}\..*", group=topic)
    notes: list[str] = []

    async def follow() -> None:
        sink = Arrivals()
        async with (
            await Cluster.connect(broker.bootstrap) as cluster,
            await Cluster.connect(broker.bootstrap, client_id="not klog: it deletes a topic and creates it") as other,
        ):

            async def fill(name: str, value: bytes) -> None:
                await create_topic(other, name)
                await produce(other, name, [io.BytesIO(value)], ProduceOptions())
                await sink.wait_for(value + b"\n")

            following = asyncio.ensure_future(tail(cluster, [], options, sink, note=notes.append))
            try:
                await fill(first, b"one")
                await fill(second, b"two")
                await delete_topics(other, await preview_deletion(other, [first]))
                while f"topic {first} was deleted" not in notes:
                    assert not following.done()
                    await asyncio.wait([following], timeout=0.05)
                await fill(first, b"again")
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
        assert sink.getvalue() == b"one\ntwo\nagain\n"

    asyncio.run(follow())
    assert notes, "there was none at first"
