"""``klog lost``: what truncation, an unclean election or recovery has set aside."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from klog.cli.arguments import OptionalTopics, Partitions, Topic, all_partitions, message_form
from klog.cli.command import Noun
from klog.cli.flags import flag
from klog.cli.invocation import Invocation
from klog.names import counted
from klog.render import Report
from klog.render.visible import is_terminal

lost = Noun("lost", "Messages that truncation and recovery have set aside: list, show, replay.")

BrokerOption = Annotated[int | None, flag("--broker ID", "Only ranges on this broker.", min=0)]
FromOption = Annotated[int | None, flag("--from ADDRESS", "Only the range that begins at this offset.", min=0)]


@lost.command("list", rows="klog.admin.quarantine:LostRow")
async def list_lost(invocation: Invocation, topics: OptionalTopics = None) -> list[Any]:
    """List the ranges that brokers have set aside: truncated or damaged."""
    from klog.admin import quarantine

    return await quarantine.list_lost(await invocation.cluster(), topics or ())


@lost.command("show")
async def show(
    invocation: Invocation,
    topic: Topic,
    partitions: Partitions = None,
    broker: BrokerOption = None,
    from_address: FromOption = None,
    form: str | None = flag("-f --format FORMAT", "Format of each message, as for `klog tail`.", parser=str),
) -> int:
    """Show the messages that were set aside: each value, followed by a newline.

    `--output jsonl` writes whole messages. Exit 1 if some of the bytes are not valid messages.
    """
    from klog.admin import quarantine
    from klog.tools import quarantine_replay

    cluster = await invocation.cluster()
    kind = message_form(invocation.shared.output, form, "`klog lost list` shows a table")
    rows = await quarantine.choose(
        cluster, topic, partitions=all_partitions(partitions), broker=broker, from_address=from_address
    )
    messages, useless = await quarantine_replay.show(
        cluster, rows, sys.stdout.buffer, output=kind, form=form, on_terminal=is_terminal(sys.stdout)
    )
    invocation.say(f"{counted(messages, 'message')} in {counted(len(rows), 'range')}")
    if useless:
        invocation.warn(f"{useless:,} bytes are not valid messages")
    return 1 if useless else 0


@lost.command("replay", rows="klog.tools.quarantine_replay:ReplayedRow", changes=True, dry_run=True)
async def replay(
    invocation: Invocation,
    topic: Topic,
    target: str = flag("--to TOPIC", "The topic that gets the messages.", ...),
    partitions: Partitions = None,
    broker: BrokerOption = None,
    from_address: FromOption = None,
) -> Report:
    """Produce the messages that were set aside to a topic, with keys, headers and timestamps.

    The keys choose the partitions. Fails if two replicas have set aside the same addresses, until one of them is
    chosen.
    """
    from klog.admin import quarantine
    from klog.tools import quarantine_replay

    cluster = await invocation.cluster()
    rows = await quarantine.choose(
        cluster, topic, partitions=all_partitions(partitions), broker=broker, from_address=from_address
    )
    count = counted(sum(row.messages or 0 for row in rows), "message")
    invocation.end_dry_run(f"send {count} to {target}", Report(invocation.command, quarantine.LostRow, rows))
    done = await quarantine_replay.replay(cluster, rows, target)
    messages = sum(row.messages for row in done)
    return invocation.report(done, footer=f"{counted(messages, 'message')} sent to {target}; the set-aside copies stay")
