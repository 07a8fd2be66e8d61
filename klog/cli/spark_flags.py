"""Flags of the commands that run Spark: what makes an export a table, and what is done with a line of spark-submit."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from klog.cli.flags import flag
from klog.cli.invocation import Invocation
from klog.errors import UsageError
from klog.render import Report

if TYPE_CHECKING:
    from klog.export.run import TableChoice
    from klog.spark.running.submit import Submission

Conf = Annotated[list[str] | None, flag("--conf NAME=VALUE", "A Spark setting.")]
Master = Annotated[str | None, flag("--master MASTER", "Spark master; all cores of this machine if not given.")]

TableFormat = Annotated[
    Literal["iceberg", "delta"] | None,
    flag("--table FORMAT", "Make ROOT a table: iceberg or delta; fixed by the first run."),
]
TableName = Annotated[str | None, flag("--table-name NAMESPACE.NAME", "Name of the Iceberg table in its catalogue.")]
Catalog = Annotated[
    str | None, flag("--catalog URI|NAME", "Catalogue of the Iceberg table; one of its own if not given.")
]


def table_choice(
    table: str | None, name: str | None, catalog: str | None, *, append: bool = False
) -> TableChoice | None:
    """The table that these flags name. UsageError where they do not go together."""
    from klog.export.run import TableChoice

    if table is None and append:
        raise UsageError("--append needs --table")
    if table is None and (name is not None or catalog is not None):
        raise UsageError(f"{'--table-name' if name is not None else '--catalog'} needs --table iceberg")
    return None if table is None else TableChoice(table, name, catalog, append)


# --- of spark-submit --------------------------------------------------------------------------------------------------

DeployMode = Annotated[
    Literal["client", "cluster"],
    flag("--deploy-mode MODE", "client: the driver runs here; cluster: it runs on the cluster."),
]
Shipped = Annotated[Path, flag("--folder FOLDER", "Folder for the zip of klog and the program.")]
SHIPPED = Path("klog-submit")


async def show_or_run(invocation: Invocation, submission: Submission, *, run: bool = False) -> Report | int:
    """The line on stdout, or as a report where a form of output is asked for; or what it ends with when it is run."""
    from klog.spark.running import submit

    if run:
        invocation.detail(submission.command)
        return await asyncio.to_thread(submit.run, submission)
    if invocation.shared.output is not None:
        return Report(invocation.command, type(submission), [submission])
    sys.stdout.write(submission.command + "\n")
    return 0
