"""``klog export submit``: the spark-submit line of an export."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from klog.cli.arguments import OptionalTopics, pairs
from klog.cli.export.noun import Conf, export, servers_of
from klog.cli.invocation import Invocation
from klog.render import Report


@export.command("submit", rows="klog.spark.running.submit:Submission")
async def submit(
    invocation: Invocation,
    root: Annotated[
        str, typer.Option("--to", metavar="ROOT", help="Folder or URL of the export, as seen from the Spark cluster.")
    ],
    master: Annotated[
        str, typer.Option("--master", metavar="MASTER", help="spark://HOST:PORT, yarn or k8s://https://HOST:PORT.")
    ],
    topics: OptionalTopics = None,
    deploy_mode: Annotated[
        Literal["client", "cluster"],
        typer.Option(
            "--deploy-mode", metavar="MODE", help="client: the driver runs here; cluster: it runs on the cluster."
        ),
    ] = "client",
    conf: Conf = None,
    arguments: Annotated[
        str,
        typer.Option(
            "--arguments", metavar="WORDS", help="Further flags of `klog export run`, as one quoted argument."
        ),
    ] = "",
    folder: Annotated[
        Path, typer.Option("--folder", metavar="FOLDER", help="Folder for the zip of klog and the program.")
    ] = Path("klog-submit"),
    run: Annotated[bool, typer.Option("--run", help="Run the command line.")] = False,
) -> Report | int:
    """Print the spark-submit command line of an export, and write the zip of klog that it ships.

    Each run of it exports the new messages.
    """
    from klog.spark.running import submit as submitting

    servers = await servers_of(invocation)
    words = ["-B", servers, "export", "run", *(topics or ()), "--to", root, *shlex.split(arguments)]
    submission = submitting.submission(
        words, folder, master=master, deploy_mode=deploy_mode, settings=dict(pairs(conf))
    )
    if run:
        invocation.detail(submission.command)
        return await asyncio.to_thread(submitting.run, submission)
    if invocation.shared.output is not None:
        return invocation.report([submission])
    sys.stdout.write(submission.command + "\n")
    return 0
