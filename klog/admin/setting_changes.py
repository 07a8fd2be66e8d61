"""What a change of a topic's settings will do, before it is made: messages that go, producers that are refused."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from klog.admin.partitions import rows_of
from klog.admin.settings import alter_topic_settings, describe_settings, topic_values
from klog.client import leader_requests
from klog.client.cluster import Cluster
from klog.client.metadata import TopicNode
from klog.client.positions import EARLIEST, LATEST
from klog.client.resolve import messages_in
from klog.clock import SYSTEM_CLOCK
from klog.config.topic import effective_min_isr
from klog.names import TopicPartition, counted
from klog.render.value_texts import duration_text, size_text

OFF: Final = -1
"""Retention without a limit."""
HORIZON_MS: Final = 60_000
"""Messages that pass the retention this soon go with those that are too old already."""


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting that changes. ``now``, ``then``: the values that hold for the topic, equal where the default's value
    becomes the topic's own, or the reverse. ``consequence``: what is lost or refused from then on, None for nothing."""

    topic: str
    setting: str
    now: str | None
    then: str | None
    consequence: str | None


async def plan_changes(
    cluster: Cluster, topic: str, given: Mapping[str, str], deleted: Sequence[str]
) -> list[SettingChange]:
    """What setting and deleting these will do. Nothing is changed, but the cluster checks them: InvalidConfig, too.

    Messages are counted on the leaders; a consequence whose leader does not answer has no count.
    """
    node = await cluster.topic(topic)
    await alter_topic_settings(cluster, topic, given, deleted, validate_only=True)
    known = {one.name: one for one in (await describe_settings(cluster, [topic]))[topic]}
    then: dict[str, str | None] = {**given, **{name: known[name].below if name in known else None for name in deleted}}
    changes = []
    for name, value in then.items():
        now = known[name].value if name in known else None
        is_own = name in known and known[name].source == "topic"
        if now != value or is_own != (name in given):
            find = _CONSEQUENCES.get(name)
            consequence = None
            if find is not None and now is not None and value is not None and now != value:
                consequence = await find(cluster, node, now, value)
            changes.append(SettingChange(topic, name, now, value, consequence))
    return changes


async def _retention_ms(cluster: Cluster, topic: TopicNode, now: str, then: str) -> str | None:
    kept_ms = int(then)
    if kept_ms == OFF or 0 <= int(now) <= kept_ms:
        return None
    old = f"messages that will be older than {duration_text(kept_ms)} in a minute"
    names = topic.names()
    found = await cluster.to_leaders(
        dict.fromkeys(names, max(SYSTEM_CLOCK.now_ms() + HORIZON_MS - kept_ms, 0)), leader_requests.list_offsets
    )
    ends = {name: one.offset for name, one in found.items() if isinstance(one, leader_requests.FoundOffset)}
    return _deleted(await _count(cluster, ends), len(names) - len(ends), old)


async def _retention_bytes(cluster: Cluster, topic: TopicNode, now: str, then: str) -> str | None:
    kept_bytes = int(then)
    if kept_bytes == OFF or 0 <= int(now) <= kept_bytes:
        return None
    found = await rows_of(cluster, [topic])
    # An offset is the address of a byte: what is further than this from the end is in excess.
    ends = {
        TopicPartition(one.topic, one.partition): one.log_end_offset - kept_bytes
        for one in found
        if one.log_start_offset is not None and one.log_end_offset is not None
        if one.log_end_offset - kept_bytes > one.log_start_offset
    }
    silent = sum(one.log_end_offset is None for one in found)
    excess = f"the oldest messages beyond {size_text(kept_bytes)} in each partition"
    return _deleted(await _count(cluster, ends), silent, excess)


async def _cleanup_policy(cluster: Cluster, topic: TopicNode, now: str, then: str) -> str | None:
    if "delete" in now or "delete" not in then:
        return None
    kept = (await topic_values(cluster, [topic.name], ["retention.ms", "retention.bytes"]))[topic.name]
    keeping = str(OFF)
    by_time = await _retention_ms(cluster, topic, keeping, kept["retention.ms"] or keeping)
    return by_time or await _retention_bytes(cluster, topic, keeping, kept["retention.bytes"] or keeping)


async def _count(cluster: Cluster, ends: Mapping[TopicPartition, int | None]) -> int | None:
    """Messages from the logs' starts up to these offsets, None for the ends. None where a leader does not answer."""
    if not cluster.is_klog:
        return None
    spans = {name: (EARLIEST, LATEST if end is None else end) for name, end in ends.items()}
    counts = (await messages_in(cluster, spans)).values()
    return None if None in counts else sum(filter(None, counts))


def _deleted(messages: int | None, silent: int, what: str) -> str | None:
    """A segment goes as a whole, the active one too, when its newest message is too old. So a count is the most that
    can go, and all of it goes where nothing more is written."""
    unknown = f"; {counted(silent, 'partition')} could not be asked" if silent else ""
    if messages is None:
        return f"{what} are deleted at the next check, how many is not known{unknown}"
    if messages or silent:
        return f"up to {counted(messages, 'message')} are deleted at the next check: {what}{unknown}"
    return None


async def _min_isr(cluster: Cluster, topic: TopicNode, now: str, then: str) -> str | None:
    factor = topic.replication_factor
    if int(then) <= int(now):
        return None
    refused = [
        one for one in topic.partitions.values() if len(one.isr) < effective_min_isr(int(then), len(one.replicas))
    ]
    said = []
    if refused:
        said.append(f"acks=all is refused at once in {counted(len(refused), 'partition')}")
    if int(then) >= factor > 1:
        said.append(f"acks=all is refused while any of the {factor} replicas is away")
    return "; ".join(said) or None


async def _unclean(cluster: Cluster, topic: TopicNode, now: str, then: str) -> str | None:
    if then != "true":
        return None
    return "a replica that is not in sync may become leader: acknowledged messages that it lacks are lost"


_CONSEQUENCES: Final[Mapping[str, Callable[[Cluster, TopicNode, str, str], Coroutine[Any, Any, str | None]]]] = {
    "cleanup.policy": _cleanup_policy,
    "retention.ms": _retention_ms,
    "retention.bytes": _retention_bytes,
    "min.insync.replicas": _min_isr,
    "unclean.leader.election.enable": _unclean,
}
