"""The noun, and what its verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation

export = Noun("export", "Messages to Parquet files, with Spark.")

Root = Annotated[str, typer.Argument(metavar="ROOT", help="The export's folder.")]


async def servers_of(invocation: Invocation) -> str:
    """The brokers' addresses, once one of them has answered: what follows has no time limit of its own."""
    await invocation.cluster()
    return await invocation.bootstrap_servers()
