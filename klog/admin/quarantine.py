"""What truncation, an unclean election or recovery has set aside: listed, shown, and sent again.

All of it comes from the brokers that hold it, by klog's own requests. A stretch is one file beside a replica's
segments; two replicas may have kept the same messages, so sending them again wants one broker where that is so.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from klog.client.cluster import Cluster
from klog.client.metadata import Metadata
from klog.errors import CannotConnect, KlogError, NoSuchThing, Refused
from klog.protocol.apis import ApiKey
from klog.render.columns import MayFail
from klog.render.values import moment


@dataclass(frozen=True, slots=True)
class LostRow(MayFail):
    """Addresses [from_, to) of a replica's log; ``messages`` None where the bytes did not check.

    A broker that cannot be asked is a row with ``error`` and nothing else: what it holds is not known.
    """

    topic: str | None
    partition: int | None
    broker: int
    from_: int | None
    to: int | None
    messages: int | None
    reason: str | None
    time: datetime | str | None
    bytes: int | None = field(default=None, metadata={"wide": True})
    file: str | None = field(default=None, metadata={"wide": True})


async def list_lost(
    cluster: Cluster, topics: Sequence[str] = (), *, known: Metadata | None = None, silent: Collection[int] = ()
) -> list[LostRow]:
    """One row per stretch, by topic, partition, broker and address; last the brokers that could not be asked, but for
    those that are known to be ``silent``. ``known``: all the metadata, if they have just been read."""
    if not cluster.is_klog:
        raise Refused("this is not a klog cluster: only klog's brokers report what they have set aside")
    for topic in topics:
        await cluster.topic(topic)
    dead = (known or await cluster.metadata(fresh=True)).dead
    answers = await cluster.to_each(ApiKey.LIST_LOST, 0, without=silent, topics=list(topics) or None)
    for broker in dead:
        answers[broker] = CannotConnect(f"broker {broker} is not alive: what it has set aside is not known")
    return sorted(
        (row for broker, answer in answers.items() for row in _rows(broker, answer)),
        key=lambda row: (row.error is not None, row.topic or "", row.partition or 0, row.broker, row.from_ or 0),
    )


def _rows(broker: int, answer: Any) -> list[LostRow]:
    if isinstance(answer, KlogError):
        return [LostRow(None, None, broker, None, None, None, None, None).failed_by(answer)]
    return [
        LostRow(
            str(one.topic),
            int(one.partition_index),
            broker,
            int(one.from_address),
            int(one.to_address),
            int(one.messages) if one.messages >= 0 else None,
            str(one.reason),
            moment(int(one.time_ms)),
            int(one.bytes),
            str(one.file),
        )
        for one in answer.stretches
    ]


async def choose(
    cluster: Cluster,
    topic: str,
    *,
    partitions: Sequence[int] | None = None,
    broker: int | None = None,
    from_address: int | None = None,
) -> list[LostRow]:
    """The selected stretches of a topic; NoSuchThing where there is none, an unreachable broker's error."""
    rows = await list_lost(cluster, [topic])
    for row in rows:
        if row.error is not None and row.broker == broker:
            raise CannotConnect(row.message or f"broker {broker} does not answer")
    chosen = [
        row
        for row in rows
        if row.error is None
        and (partitions is None or row.partition in partitions)
        and (broker is None or row.broker == broker)
        and (from_address is None or row.from_ == from_address)
    ]
    if not chosen:
        silent = ", ".join(str(row.broker) for row in rows if row.error is not None)
        raise NoSuchThing(
            f"no stretch of topic {topic!r} was set aside that matches"
            + (f"; not asked: broker {silent}" if silent else ""),
            hint="`klog lost list` shows what there is",
        )
    return chosen


def check_no_doubles(rows: Sequence[LostRow]) -> None:
    """Refused where two brokers have kept the same addresses: sent again, both would be sent."""
    ends: dict[tuple[str | None, int | None], tuple[int, int]] = {}
    for row in sorted(rows, key=lambda row: (row.topic or "", row.partition or 0, row.from_ or 0)):
        place = (row.topic, row.partition)
        end, broker = ends.get(place, (0, row.broker))
        if (row.from_ or 0) < end:
            raise Refused(
                f"{row.topic}-{row.partition}: brokers {broker} and {row.broker} have both kept address {row.from_}"
                if broker != row.broker
                else f"{row.topic}-{row.partition}: broker {broker} has kept address {row.from_} more than once",
                hint="choose one with --broker ID or --from ADDRESS, so that nothing is sent twice",
            )
        ends[place] = (row.to or 0, row.broker)
