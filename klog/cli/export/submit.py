"""``klog export submit``: the spark-submit line of an export."""

from __future__ import annotations

import shlex

from klog.cli.arguments import OptionalTopics
from klog.cli.export.noun import export, servers_of
from klog.cli.flags import flag
from klog.cli.invocation import Invocation
from klog.cli.name_values import pairs
from klog.cli.spark_flags import SHIPPED, ClusterMaster, Conf, DeployMode, RunLine, Shipped, show_or_run
from klog.render import Report


@export.command("submit", rows="klog.spark.running.submit:Submission")
async def submit(
    invocation: Invocation,
    *,
    root: str = flag("--to ROOT", "Folder or URL of the export, as seen from the Spark cluster.", ...),
    master: ClusterMaster,
    topics: OptionalTopics = None,
    deploy_mode: DeployMode = "client",
    conf: Conf = None,
    arguments: str = flag("--arguments WORDS", "Further flags of `klog export run`, as one quoted argument.", ""),
    folder: Shipped = SHIPPED,
    run_line: RunLine = False,
) -> Report | int:
    """Print the spark-submit command line of an export, and write the zip of klog that it ships.

    Each run of it exports the new messages.
    """
    from klog.spark.running.submit import submission

    servers = await servers_of(invocation)
    words = ["-B", servers, "export", "run", *(topics or ()), "--to", root, *shlex.split(arguments)]
    made = submission(words, folder, master=master, deploy_mode=deploy_mode, settings=dict(pairs(conf)))
    return await show_or_run(invocation, made, run=run_line)
