"""The noun, and what its verbs share."""

from __future__ import annotations

from typing import Annotated

from klog.cli.command import Noun
from klog.cli.flags import argument
from klog.cli.invocation import Invocation
from klog.spark.running.hadoop import register_stores

export = Noun("export", "Export messages to Parquet and other files with Spark.")

register_stores()  # ROOT may be in Hadoop's file systems, for every verb

Root = Annotated[str, argument("ROOT", "Folder or URL of the export.")]


async def servers_of(invocation: Invocation) -> str:
    """The brokers' addresses, once one of them has answered: what follows has no time limit of its own."""
    await invocation.cluster()
    return await invocation.bootstrap_servers()
