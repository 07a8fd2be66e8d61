"""The topics of a copy: which they are; the one that is copied into has the partitions of the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from klog.admin.settings import describe_settings, setting_of
from klog.admin.topics import alter_topic, create_topic
from klog.client.cluster import Cluster
from klog.errors import InconsistentTopicId, InvalidConfig, InvalidPartitions, UnknownTopicOrPartition
from klog.names import counted, regular_expression
from klog.tools.copying.cluster_endpoint import ClusterEndpoint

BATCH_BYTES_MAX = 1_048_588
"""Kafka's default of ``max.message.bytes``, where it cannot be asked for."""


TAKEN_OVER = (
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
)
"""Settings of a topic that say what it holds, and for how long. The others are for the cluster that it is in: how many
replicas must have a message, who may lead, when is flushed."""


class TopicNames:
    """Topics whose name matches a regular expression, and none of others."""

    def __init__(self, wanted: Sequence[str], unwanted: Sequence[str] = ()) -> None:
        """UsageError for an invalid expression."""
        self._wanted = [regular_expression(text, "--topic") for text in wanted]
        self._unwanted = [regular_expression(text, "--exclude") for text in unwanted]

    def __str__(self) -> str:
        return ", ".join(repr(one.pattern) for one in self._wanted)

    def __contains__(self, name: str) -> bool:
        if name.startswith("__"):  # a cluster's own (Kafka's offsets, its transactions)
            return False
        wanted, unwanted = (any(one.fullmatch(name) for one in some) for some in (self._wanted, self._unwanted))
        return wanted and not unwanted


async def settings_to_take_over(source: Cluster, topic: str) -> dict[str, str]:
    """Those of `TAKEN_OVER` that are set on the topic itself; what it has from its brokers is not its own."""
    found = (await describe_settings(source, [topic], names=TAKEN_OVER))[topic]
    return {one.name: one.value for one in found if one.source == "topic" and one.value is not None}


async def matching_topic(
    target: Cluster,
    topic: str,
    wanted: int,
    *,
    settings: Mapping[str, str] | None = None,
    may_grow: bool = False,
    note: Callable[[str], None] = lambda text: None,
    dry_run: bool = False,
) -> bool:
    """Have the target's topic with as many partitions as the source's has; it is made where it is missing.

    Where it has fewer that is InvalidPartitions with what to do, or, with ``may_grow``, it is given them. ``settings``
    are for one that is made; where the target does not take them it is made without, which is noted. Whether it is
    there now: with ``dry_run`` a missing one is not made, which is noted.
    """
    try:
        there = len((await target.topic(topic, fresh=True)).partitions)
    except UnknownTopicOrPartition:
        if dry_run:
            note(f"topic {topic} would be made with {counted(wanted, 'partition')} in the target")
            return False
        try:
            made = await create_topic(target, topic, partitions=wanted, settings=settings, if_not_exists=True)
        except InvalidConfig as error:
            note(f"topic {topic}: the target rejects the source's settings ({error.message}): created without them")
            settings = None
            made = await create_topic(target, topic, partitions=wanted, if_not_exists=True)
        there = made.partitions
        if made.created:
            own = "".join(f", {name}={value}" for name, value in sorted((settings or {}).items()))
            note(f"made topic {topic} with {counted(wanted, 'partition')}{own} in the target")
    if there >= wanted:
        return True
    if not may_grow:
        raise InvalidPartitions(
            f"topic {topic} of the target has {counted(there, 'partition')}, and the source has {wanted}:"
            " each is copied into the one of the same number",
            hint=f"klog topic alter {topic} -p {wanted} -B {target.bootstrap}",
        )
    await alter_topic(target, topic, wanted)
    note(f"topic {topic} of the target now has {counted(wanted, 'partition')}, as in the source")
    return True


async def batch_bytes_max(cluster: Cluster, topic: str) -> int:
    value = await setting_of(cluster, topic, "max.message.bytes")
    return BATCH_BYTES_MAX if value is None else int(value)


def made_again(source: ClusterEndpoint, topic: str) -> InconsistentTopicId:
    return InconsistentTopicId(
        f"topic {topic} of {source.bootstrap} was deleted and created again since it was copied: new offsets",
        hint="copy it into another topic, or delete the target's",
    )
