"""Run verbs against a broker of the tests."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from klog.admin.health.findings import Finding
from klog.admin.health.snapshot import Where
from klog.admin.topics import create_topic
from klog.client.cluster import Cluster
from klog.tools.produce import Receipt, produce
from klog.tools.produce_options import ProduceOptions
from klog.tools.status import look
from klog.tools.tail import tail
from klog.tools.tail_options import TailOptions, TailSummary

T = TypeVar("T")


def run(bootstrap: str, verb: Callable[[Cluster], Awaitable[T]], *, timeout_s: float = 10.0) -> T:
    """The result of a verb over a connection of its own."""

    async def connected() -> T:
        async with await Cluster.connect(
            bootstrap, source="the test", timeout_s=timeout_s, client_id="test"
        ) as cluster:
            return await verb(cluster)

    return asyncio.run(connected())


def make_topic(bootstrap: str, name: str, partitions: int = 1, **settings: str) -> None:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    run(bootstrap, lambda cluster: create_topic(cluster, name, partitions=partitions, settings=given))


def send(bootstrap: str, topic: str, *inputs: bytes, **options: Any) -> Receipt:
    sources = [io.BytesIO(one) for one in inputs]
    return run(bootstrap, lambda cluster: produce(cluster, topic, sources, ProduceOptions(**options)))


def read(bootstrap: str, topic: str | list[str], **options: Any) -> tuple[bytes, TailSummary, list[str]]:
    """What tail writes, its summary, and its notes."""
    sink, notes = io.BytesIO(), list[str]()
    topics = [topic] if isinstance(topic, str) else topic
    summary = run(bootstrap, lambda cluster: tail(cluster, topics, TailOptions(**options), sink, note=notes.append))
    return sink.getvalue(), summary, notes


class Arrivals(io.BytesIO):
    """A sink whose reader, on the loop that makes it, waits for what it wants to see."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._came = asyncio.Event()

    def flush(self) -> None:
        self._loop.call_soon_threadsafe(self._came.set)

    async def wait_for(self, content: bytes) -> None:
        while content not in self.getvalue():
            self._came.clear()
            await asyncio.wait_for(self._came.wait(), 30)


async def check(
    bootstrap: str | None,
    zookeeper: str | None,
    subjects: Sequence[str] = (),
    *,
    timeout_s: float = 10.0,
    home: Path | None = None,
    **options: Any,
) -> list[Finding]:
    """What `klog status` finds, by these addresses; ``options`` of `klog.tools.status.look`."""
    nowhere = home or Path("/nowhere")
    where = Where(bootstrap, zookeeper, "the test", nowhere, timeout_s=timeout_s)
    return (await look(where, subjects, **options)).findings
