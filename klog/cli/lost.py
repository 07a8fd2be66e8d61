"""``klog lost``: what truncation, an unclean election or recovery has set aside."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation, is_terminal
from klog.cli.words import OptionalTopics, Partitions, Topic, all_partitions
from klog.errors import UsageError
from klog.render import Format, Report

lost = Noun("lost", "What truncation and recovery have set aside: list, show, replay.")

BrokerOption = Annotated[
    int | None, typer.Option("--broker", metavar="ID", min=0, help="Only what this broker has kept.")
]
FromOption = Annotated[
    int | None, typer.Option("--from", metavar="ADDRESS", min=0, help="Only the stretch that begins here.")
]


@lost.command("list", rows="klog.ops.lost:LostRow")
async def list_lost(invocation: Invocation, topics: OptionalTopics = None) -> list[Any]:
    """List what the brokers have kept beside their logs: cut by a truncation, or damaged."""
    from klog.ops import lost as losses

    return await losses.list_lost(await invocation.cluster(), topics or ())


@lost.command("show")
async def show(
    invocation: Invocation,
    topic: Topic,
    partitions: Partitions = None,
    broker: BrokerOption = None,
    from_address: FromOption = None,
    form: Annotated[
        str | None,
        typer.Option("-f", "--format", metavar="FORMAT", help="How to write each message, as for `klog tail`."),
    ] = None,
) -> int:
    """Show the messages that were set aside: each value, and a newline after it.

    `--output jsonl` writes whole messages. Exit 1 where some of the bytes that were kept are no messages.
    """
    from klog.ops import lost as losses

    cluster = await invocation.cluster()
    kind = _kind(invocation.shared.output, form)
    rows = await losses.choose(
        cluster, topic, partitions=all_partitions(partitions), broker=broker, from_address=from_address
    )
    messages, useless = await losses.show(
        cluster, rows, sys.stdout.buffer, output=kind, form=form, on_terminal=is_terminal(sys.stdout)
    )
    invocation.say(f"{messages:,} messages of {len(rows)} stretches")
    if useless:
        invocation.warn(f"{useless:,} bytes that were kept are no messages")
    return 1 if useless else 0


@lost.command("replay", rows="klog.ops.lost:ReplayedRow")
async def replay(
    invocation: Invocation,
    topic: Topic,
    target: Annotated[str, typer.Option("--to", metavar="TOPIC", help="The topic that gets the messages.")],
    partitions: Partitions = None,
    broker: BrokerOption = None,
    from_address: FromOption = None,
) -> Report:
    """Send what was set aside to a topic, with keys, headers and times; keys choose the partitions.

    Refused where two replicas have kept the same addresses, until one of them is chosen.
    """
    from klog.ops import lost as losses

    cluster = await invocation.cluster()
    rows = await losses.choose(
        cluster, topic, partitions=all_partitions(partitions), broker=broker, from_address=from_address
    )
    done = await losses.replay(cluster, rows, target)
    messages = sum(row.messages for row in done)
    return invocation.report(done, footer=f"{messages:,} messages to {target}; what was kept stays where it is")


def _kind(output: Format | None, form: str | None) -> Literal["value", "format", "jsonl"]:
    if output not in (None, Format.JSONL):
        raise UsageError(
            f"--output {output.value}: messages are a stream, which is values, -f FORMAT or --output jsonl",
            hint="`klog lost list` shows a table",
        )
    if form is not None and output is not None:
        raise UsageError("-f and --output jsonl both say how messages are written: choose")
    return "format" if form is not None else "jsonl" if output is Format.JSONL else "value"
