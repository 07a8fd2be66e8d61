"""``klog topic``: topics and their partitions."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from klog.cli import watching
from klog.cli.arguments import (
    ID_MAX,
    OptionalTopics,
    Properties,
    Regex,
    Topic,
    Topics,
    assignment,
    bytes_rate,
    topic_settings,
)
from klog.cli.command import Noun
from klog.cli.flags import argument, flag, limit
from klog.cli.invocation import Invocation
from klog.cli.name_cache import deleted_topics, remember, remember_more, remember_topics
from klog.cli.progress import counting
from klog.errors import KlogError, UsageError
from klog.names import check_new_topic_name, counted, regular_expression
from klog.render import Report

if TYPE_CHECKING:
    from klog.client.cluster import Cluster

topic = Noun("topic", "Topics and partitions: create, describe, alter, delete, elect, verify.")


@topic.command("create", rows="klog.admin.topics:TopicCreated", asks=True, changes=True)
async def create(
    invocation: Invocation,
    name: Topic,
    partitions: int | None = flag("-p --partitions N", "Number of partitions.", min=1, max=ID_MAX),
    replication_factor: int | None = flag("--replication-factor R", "Number of replicas of each partition.", min=1),
    properties: Properties = None,
    assignment_text: str | None = flag(
        "--assignment 1:2,2:3", "Replicas of each partition, the preferred leader first."
    ),
    start_broker: int | None = flag("--start-broker ID", "Broker of the first partition."),
    like: str | None = flag("--like TOPIC", "Partitions, replication factor and settings of this topic, unless given."),
    if_not_exists: bool = flag("--if-not-exists", "No error if the topic exists."),
) -> list[Any]:
    """Create a topic. Asks first where one replica is asked for, and the cluster has several brokers.

    -X sets the topic's own settings, under Kafka's names: -X retention.ms=3600000.
    """
    from klog.admin import topics
    from klog.admin.settings import min_isr
    from klog.admin.undo import no_way_back

    check_new_topic_name(name)
    given = topic_settings(properties)
    chosen = assignment(assignment_text) if assignment_text is not None else None
    if chosen is not None and (partitions is not None or replication_factor is not None or start_broker is not None):
        raise UsageError("--assignment excludes -p, --replication-factor and --start-broker")
    cluster = await invocation.cluster()
    make = partial(
        topics.create_topic,
        cluster,
        name,
        partitions=partitions,
        replication_factor=replication_factor,
        settings=given,
        assignment=chosen,
        start_broker=start_broker,
        like=like,
        if_not_exists=if_not_exists,
    )
    if invocation.shared.dry_run or replication_factor == 1 or chosen is not None or like is not None:
        planned = await make(validate_only=True)
        what = f"topic {name} with {counted(planned.partitions, 'partition')}"
        if not planned.created:
            invocation.end_dry_run(f"topic {name} exists already", invocation.report([planned]))
        elif planned.replication_factor == 1 and len(await cluster.brokers()) > 1:
            risk = "its messages are lost with one disk, and not served while its broker is away"
            invocation.confirm(f"Create {what} of one replica", invocation.report([planned]), consequence=risk)
        else:
            invocation.end_dry_run(f"create {what}; {no_way_back('topic-create')}", invocation.report([planned]))
    with counting(invocation, "partitions with a leader", partitions) as led:
        created = await make(led=led)
    minimum = (await min_isr(cluster, [name])).get(name, 1)
    if minimum > created.replication_factor:
        invocation.warn(
            f"min.insync.replicas of {name} is {minimum}, its replication factor {created.replication_factor}: "
            f"acks=all means {created.replication_factor} here"
        )
    return [created]


@topic.command("list", rows="klog.admin.topics:TopicSummary")
async def list_topics(
    invocation: Invocation,
    pattern: str | None = argument("PATTERN", "Only topics whose name matches this glob pattern."),
    regex: Regex = False,
    internal: bool = flag("--internal", "Include the cluster's own topics, such as klog.events."),
    overrides: bool = flag("--overrides", "Only topics with settings of their own; -o wide shows them."),
    deleted: bool = flag("--deleted", "Deleted topics that can be restored, the oldest first, and until when."),
) -> Report:
    """List topics.

    A deleted topic can be restored for klog.trash.retention.ms (24 hours). Its messages need their disk space until
    then.

    The exit code is 1 if a pattern matches no topic, and if the messages of a topic cannot be counted because a leader
    does not answer: its row then has an ERROR.
    """
    from klog.admin import topics

    if deleted:
        if pattern is not None or internal or overrides:
            raise UsageError("--deleted lists all deleted topics: it excludes PATTERN, --internal and --overrides")
        return await _deleted(invocation)
    if regex and pattern is None:
        raise UsageError("--regex needs a PATTERN")
    if regex and pattern is not None:
        regular_expression(pattern, "PATTERN")
    cluster = await invocation.cluster()
    rows = await topics.list_topics(cluster, pattern, regex=regex, internal=internal, overrides=overrides)
    if pattern is None and not overrides:
        remember_topics(invocation.target, {row.topic: row.partitions for row in rows})
    unknown = sum(row.messages is None and row.error is None for row in rows) if cluster.is_klog else 0
    note = (
        f"{counted(unknown, 'topic')} without a count: a partition has no leader, or its broker is still counting"
        if unknown
        else ""
    )
    missing = pattern is not None and not rows
    return invocation.report(
        rows, notes=(note,), footer=await _unmatched(cluster, pattern) if missing else "", failed=missing
    )


async def _unmatched(cluster: Cluster, pattern: str | None) -> str:
    near = await cluster.near(pattern or "")
    return f"no topic matches {pattern!r}" + (f"; did you mean {' or '.join(near)}?" if near else "")


@topic.command("describe", rows="klog.admin.partitions:PartitionRow")
async def describe(
    invocation: Invocation,
    topics: OptionalTopics = None,
    under_replicated: bool = flag("--under-replicated", "Only partitions with a replica that is not in sync."),
    offline: bool = flag("--offline", "Only partitions without a leader."),
    under_min_isr: bool = flag(
        "--under-min-isr", "Only partitions with fewer in-sync replicas than min.insync.replicas."
    ),
    at_min_isr: bool = flag("--at-min-isr", "Only partitions with exactly min.insync.replicas in-sync replicas."),
) -> Report:
    """Show the partitions of topics: leaders, replicas, offsets, sizes; all, or those that any given filter is about.

    Without a topic, those of all topics.
    """
    from klog.admin import partitions

    cluster = await invocation.cluster()
    rows = await partitions.list_partitions(
        cluster,
        topics,
        under_replicated=under_replicated,
        offline=offline,
        under_min_isr=under_min_isr,
        at_min_isr=at_min_isr,
    )
    try:
        sizes = await partitions.uncompacted(cluster, topics) if topics and cluster.is_klog else {}
    except KlogError:
        sizes = {}  # a client that may not read the settings sees the partitions
    notes = [
        f"{name} asks for compaction (cleanup.policy), and klog compacts nothing yet: its replicas keep all of their "
        f"{size:,} bytes"
        for name, size in sizes.items()
    ]
    return invocation.report(rows, notes=tuple(notes))


@topic.command("alter", rows="klog.admin.topics:TopicAltered", asks=True, changes=True)
async def alter(
    invocation: Invocation,
    name: Topic,
    partitions: int = flag("-p --partitions N", "New number of partitions.", ..., min=1, max=ID_MAX),
) -> list[Any]:
    """Add partitions to a topic. Asks first.

    Keys then map to other partitions than before, and partitions cannot be removed again.
    """
    from klog.admin import topics
    from klog.admin.undo import no_way_back

    cluster = await invocation.cluster()
    planned = await topics.preview_alter(cluster, name, partitions)
    question = f"Increase the partitions of {name} from {planned.partitions_before} to {planned.partitions}"
    consequence = f"keys will map to other partitions; {no_way_back('partitions-add')}"
    invocation.confirm(question, invocation.report([planned]), consequence=consequence)
    with counting(invocation, "partitions with a leader", partitions) as led:
        return [await topics.alter_topic(cluster, name, partitions, led=led)]


@topic.command("config", rows="klog.admin.topics:TopicSetting", asks=True, acts=True)
async def config(
    invocation: Invocation,
    name: Topic,
    given: list[str] | None = argument(
        "NAME=VALUE", "Settings to set, as retention.ms=7d; shows all settings if not given."
    ),
    delete: list[str] | None = flag("--delete NAME", "Remove this setting from the topic."),
) -> list[Any]:
    """Show a topic's settings, or set and delete some.

    Asks first where messages would be deleted or acks=all be refused, and says how many and where.
    """
    from klog.admin import topics
    from klog.admin.setting_changes import SettingChange, plan_changes

    changes = topic_settings(given)
    if not changes and not delete:
        return await topics.topic_settings(await invocation.cluster(), name)
    dry_run = invocation.shared.dry_run
    if not dry_run:
        invocation.check_may_change()
    cluster = await invocation.cluster()
    planned = await plan_changes(cluster, name, changes, delete or [])
    consequences = [one.consequence for one in planned if one.consequence is not None]
    if consequences or dry_run:
        what = f"Change {counted(len(planned), 'setting')} of topic {name}"
        preview = Report(invocation.command, SettingChange, planned)
        invocation.confirm(what, preview, consequence="; ".join(consequences))
    return await topics.set_topic_settings(cluster, name, changes, delete or [])


@topic.command("delete", rows="klog.admin.topics:TopicDeletion", asks=True, changes=True, acts=True)
async def delete(
    invocation: Invocation,
    names: Topics,
    if_exists: bool = flag("--if-exists", "No error if a topic does not exist."),
    internal: bool = flag("--internal", "Also if a topic is the cluster's own."),
    purge: bool = flag("--purge", "Delete for good, also what is deleted already."),
) -> Report:
    """Delete topics and all their messages. Asks first, and shows the number of messages.

    A deleted topic can be restored for klog.trash.retention.ms: `klog topic list --deleted`, `klog topic restore`. It
    keeps its name and its disk space meanwhile. --purge deletes it for good.
    """
    from klog.admin import topics, trash
    from klog.admin.undo import no_way_back

    cluster = await invocation.cluster()
    known = (await cluster.metadata()).topics
    own = [name for name in names if name in known and known[name].is_internal]
    if own and not internal:
        raise UsageError(
            f"the topic {own[0]} is internal: the cluster writes and reads it",
            hint="--internal deletes it all the same",
        )
    deleted: dict[str, topics.TopicDeletion] = {}
    if purge:
        rows = await trash.list_trash(cluster, await invocation.zookeeper(), {})
        deleted = {row.topic: topics.TopicDeletion(row.topic, row.partitions, row.messages, row.bytes) for row in rows}
    there = [name for name in names if name not in deleted]
    preview = await topics.preview_deletion(cluster, there, if_exists=if_exists) if there else []
    preview += [deleted[name] for name in dict.fromkeys(names) if name in deleted]
    doomed = [row for row in preview if row.error is None]
    missing = [] if purge else [row.topic for row in preview if row.error is not None]
    notes = await invocation.restore_notes(missing)
    if not doomed:
        return invocation.report(preview, notes=notes)
    messages = [row.messages for row in doomed]
    total = "an unknown number of messages" if None in messages else counted(sum(filter(None, messages)), "message")
    what = f"topic {doomed[0].topic}" if len(doomed) == 1 else counted(len(doomed), "topic")
    question = f"Delete {what} with {total}{' for good' if purge else ''}"
    invocation.confirm(question, invocation.report(preview), consequence=no_way_back("topic-purge") if purge else "")
    if not purge:
        preview = await topics.delete_topics(cluster, preview)
        remember_more(invocation.target, "trash", [row.topic for row in preview if row.error is None])
        return invocation.report(preview, notes=notes)
    ids = await trash.ids_of(await invocation.zookeeper(), [row.topic for row in doomed])
    now = await topics.delete_topics(cluster, [row for row in preview if row.topic not in deleted])
    now += [row for row in preview if row.topic in deleted]
    with counting(invocation, "topics purged", len(now)) as count:
        return invocation.report(await trash.purge_topics(cluster, now, ids, count))


async def _deleted(invocation: Invocation) -> Report:
    """Deleted topics that can be restored, the oldest first."""
    from klog.admin import trash

    session = await invocation.zookeeper()
    damage: dict[str, str] = {}
    rows = await trash.list_trash(await invocation.cluster(), session, damage)
    for what in damage.values():
        invocation.warn(f"left out: {what}")
    remember(invocation.target, "trash", dict.fromkeys(row.topic for row in rows))
    return Report(invocation.command, trash.TrashRow, rows)


@topic.command("restore", rows="klog.admin.trash:RestoreRow", changes=True, dry_run=True)
async def restore(
    invocation: Invocation,
    name: str = argument("NAME", "The deleted topic.", ..., autocompletion=deleted_topics),
) -> Report:
    """Bring a deleted topic back.

    It has the messages that were acknowledged, its settings and the offsets of groups, as when it was deleted.
    """
    from klog.admin import trash

    session = await invocation.zookeeper()
    cluster = await invocation.cluster()
    plan = await trash.plan_restore(cluster, session, name)
    invocation.end_dry_run(f"restore topic {name}", invocation.report([plan]))
    with counting(invocation, "partitions with a leader", plan.partitions) as led:
        await trash.restore_topic(cluster, plan, led=led)
    return invocation.report([plan])


@topic.command("elect", rows="klog.admin.elections:ElectionRow", changes=True, dry_run=True, acts=True)
async def elect(
    invocation: Invocation,
    names: list[str] | None = argument("TOPIC|TOPIC-P", "Only these topics and partitions; all topics if not given."),
) -> Report:
    """Elect the preferred leader of each partition, the first of its replicas, if it is in sync."""
    from klog.admin import elections

    cluster = await invocation.cluster()
    if invocation.shared.dry_run:
        planned = await elections.preview_preferred(cluster, names or ())
        moved = sum(row.old != row.new for row in planned)
        what = f"elect the preferred leader in {counted(moved, 'partition')}"
        invocation.end_dry_run(what, invocation.report(planned))
    rows = await elections.elect_preferred(cluster, names or ())
    changed = sum(row.old != row.new for row in rows)
    failed = sum(row.error is not None for row in rows)
    if not changed and not failed:
        return invocation.report(rows, footer="the preferred replica already leads every partition")
    unable = f"; {counted(failed, 'preferred replica')} cannot lead now" if failed else ""
    return invocation.report(rows, footer=f"{counted(changed, 'partition')} with a new leader{unable}")


@topic.command("verify", rows="klog.tools.verify_replicas:ReplicaRow")
async def verify(
    invocation: Invocation,
    topics: OptionalTopics = None,
    regex: str | None = flag("-r --regex RE", "Also topics whose whole name matches this regular expression."),
    rate: int | None = flag("--rate RATE", "Limit on what each broker reads, as 50MB/s.", parser=bytes_rate),
    every: float | None = flag("--every DURATION", "Compare again at this interval, until Ctrl-C.", parser=limit),
) -> Report | int:
    """Compare all replicas of each partition, from the highest log start offset to the lowest high watermark.

    It compares checksums of ranges, then finds the first address that differs. A replica with a recorded hole is
    reported, but not as a mismatch. Exit 1 on any mismatch, or if a replica cannot be read.
    """
    from klog.tools import verify_replicas

    if regex is not None:
        regular_expression(regex, "--regex")
    cluster = await invocation.cluster()

    async def compare() -> Report:
        began = time.monotonic()
        with counting(invocation, "bytes") as count:
            rows = await verify_replicas.verify_replicas(
                cluster,
                topics or (),
                pattern=regex,
                rate_bytes=rate,
                count=count,
            )
        took_s = max(time.monotonic() - began, 1e-9)
        bad = sum(row.is_mismatch for row in rows)
        failed = sum(row.error is not None for row in rows)
        found = f"{bad} differ" if bad else "no differences"
        unasked = f", {failed} not readable" if failed else ""
        size = f"{count.done:,} bytes read per replica in {took_s:.1f} s"
        footer = f"{counted(len(rows), 'replica')}, {found}{unasked}; {size}"
        return invocation.report(rows, failed=bool(bad), footer=footer)

    if every is None:
        return await compare()
    watching.check_watchable(invocation, watch=True, flag="--every")
    return await watching.watch(invocation, compare, every)
