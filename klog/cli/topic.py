"""``klog topic``: create, list, describe, alter, config, delete."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from klog.cli.command import Noun
from klog.cli.complete import remember_topics
from klog.cli.invocation import Invocation
from klog.cli.words import ID_MAX, Properties, Regex, Topic, Topics, assignment, settings
from klog.errors import UsageError
from klog.render import Report

topic = Noun("topic", "Create, list, describe, alter and delete topics.")


@topic.command("create", rows="klog.ops.topics:TopicCreated")
async def create(
    invocation: Invocation,
    name: Topic,
    partitions: Annotated[
        int | None, typer.Option("-p", "--partitions", metavar="N", min=1, max=ID_MAX, help="How many.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", metavar="R", min=1, help="On how many brokers each lies.")
    ] = None,
    properties: Properties = None,
    assignment_text: Annotated[
        str | None,
        typer.Option("--assignment", metavar="1:2,2:3", help="The brokers of each partition, the leader first."),
    ] = None,
    start_broker: Annotated[
        int | None, typer.Option("--start-broker", metavar="ID", help="The broker that gets the first partition.")
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="No error where the topic is there.")] = False,
) -> list[Any]:
    """Create a topic.

    Settings are the topic's own, by Kafka's names: -X retention.ms=3600000.
    """
    from klog.ops import topics
    from klog.ops.settings import min_isr

    given = settings(properties)
    chosen = assignment(assignment_text) if assignment_text is not None else None
    if chosen is not None and (partitions is not None or replication_factor is not None or start_broker is not None):
        raise UsageError("--assignment already says how many partitions and replicas, and where")
    cluster = await invocation.cluster()
    created = await topics.create_topic(
        cluster,
        name,
        partitions=partitions,
        replication_factor=replication_factor,
        settings=given,
        assignment=chosen,
        start_broker=start_broker,
        if_not_exists=if_not_exists,
    )
    minimum = (await min_isr(cluster, [name])).get(name, 1)
    if minimum > created.replication_factor:
        invocation.warn(
            f"min.insync.replicas of {name} is {minimum}, its replication factor {created.replication_factor}: "
            f"acks=all means {created.replication_factor} here"
        )
    return [created]


@topic.command("list", rows="klog.ops.topics:TopicSummary")
async def list_topics(
    invocation: Invocation,
    pattern: Annotated[str | None, typer.Argument(help="Only topics whose name matches, as file names do.")] = None,
    regex: Regex = False,
) -> Report:
    """List topics.

    A topic whose messages cannot be counted, because a leader does not answer, has an ERROR; the exit code is then 1.
    """
    from klog.ops import topics

    if regex and pattern is None:
        raise UsageError("--regex needs a PATTERN")
    cluster = await invocation.cluster()
    rows = await topics.list_topics(cluster, pattern, regex=regex)
    if pattern is None:
        remember_topics(invocation.target, [row.topic for row in rows])
    unknown = sum(row.messages is None and row.error is None for row in rows) if cluster.is_klog else 0
    note = f"{unknown} without a count: a partition has no leader, or its broker still counts" if unknown else ""
    return invocation.report(rows, notes=(note,))


@topic.command("describe", rows="klog.ops.partitions:PartitionRow")
async def describe(invocation: Invocation, names: Topics) -> list[Any]:
    """Show the partitions of topics: leaders, replicas, offsets, sizes."""
    from klog.ops import partitions

    return await partitions.describe_topics(await invocation.cluster(), names)


@topic.command("alter", rows="klog.ops.topics:TopicAltered", asks=True)
async def alter(
    invocation: Invocation,
    name: Topic,
    partitions: Annotated[
        int, typer.Option("-p", "--partitions", metavar="N", min=1, max=ID_MAX, help="How many it shall have.")
    ],
) -> list[Any]:
    """Add partitions to a topic.

    Keys then go to other partitions than before, and partitions cannot be taken away again: it asks first.
    """
    from klog.ops import topics

    cluster = await invocation.cluster()
    planned = await topics.preview_alter(cluster, name, partitions)
    question = f"Give {name} {planned.partitions} partitions instead of {planned.partitions_before}"
    invocation.confirm(f"{question} (keys will go elsewhere than before)", invocation.report([planned]))
    return [await topics.alter_topic(cluster, name, partitions)]


@topic.command("config", rows="klog.ops.topics:TopicSetting")
async def config(
    invocation: Invocation,
    name: Topic,
    given: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Settings to set; none: show them all.")
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", metavar="NAME", help="A setting to take away from the topic.")
    ] = None,
) -> list[Any]:
    """Show a topic's settings, or set and delete some."""
    from klog.ops import topics

    changes = settings(given)
    cluster = await invocation.cluster()
    if changes or delete:
        return await topics.set_topic_settings(cluster, name, changes, delete or [])
    return await topics.topic_settings(cluster, name)


@topic.command("delete", rows="klog.ops.topics:TopicDeletion", asks=True)
async def delete(
    invocation: Invocation,
    names: Topics,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="No error where a topic is not there.")] = False,
) -> Report:
    """Delete topics and all their messages. Asks first, naming the counts."""
    from klog.ops import topics

    cluster = await invocation.cluster()
    preview = await topics.preview_deletion(cluster, names, if_exists=if_exists)
    doomed = [row for row in preview if row.error is None]
    if not doomed:
        return invocation.report(preview)
    messages = [row.messages for row in doomed]
    counted = "an unknown number of" if None in messages else f"{sum(count or 0 for count in messages):,}"
    what = f"topic {doomed[0].topic}" if len(doomed) == 1 else f"{len(doomed)} topics"
    invocation.confirm(f"Delete {what} with {counted} messages", invocation.report(preview))
    return invocation.report(await topics.delete_topics(cluster, preview))
