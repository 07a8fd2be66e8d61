"""Flags of the commands that run Spark, and what is done with a line of spark-submit."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from klog.cli.flags import flag
from klog.cli.invocation import Invocation
from klog.render import Report

if TYPE_CHECKING:
    from klog.spark.running.submit import Submission

Conf = Annotated[list[str] | None, flag("--conf NAME=VALUE", "A Spark setting.")]
Master = Annotated[str | None, flag("--master MASTER", "Spark master; all cores of this machine if not given.")]

# --- of spark-submit --------------------------------------------------------------------------------------------------

ClusterMaster = Annotated[str, flag("--master MASTER", "spark://HOST:PORT, yarn or k8s://https://HOST:PORT.")]
DeployMode = Annotated[
    Literal["client", "cluster"],
    flag("--deploy-mode MODE", "client: the driver runs here; cluster: it runs on the cluster."),
]
Shipped = Annotated[Path, flag("--folder FOLDER", "Folder for the zip of klog and the program.")]
SHIPPED = Path("klog-submit")
RunLine = Annotated[bool, flag("--run", "Run the command line.")]


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
