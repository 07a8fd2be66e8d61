"""The noun, and what its verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.spark.running.hadoop import announce

export = Noun("export", "Messages to Parquet files, with Spark.")

announce()  # ROOT may be in Hadoop's file systems, for every verb

Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark's; may be given again.")
]
Root = Annotated[str, typer.Argument(metavar="ROOT", help="The export's folder, or its URL.")]


async def servers_of(invocation: Invocation) -> str:
    """The brokers' addresses, once one of them has answered: what follows has no time limit of its own."""
    await invocation.cluster()
    return await invocation.bootstrap_servers()
