"""`klog export submit`, `klog stream run --submit`: the line that hands a command to spark-submit, and its zip.

The line is complete, so a scheduler can keep it: an export, or a stream, continues where it stopped, so the same line
is right every time.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from klog.errors import HostError, UsageError
from klog.spark.running.package import make_zip

PROGRAM = """\
import sys

from klog.cli.root import run

if __name__ == "__main__":
    sys.argv[0] = "klog"
    sys.exit(run(sys.argv[1:]))
"""
"""What spark-submit runs: ``klog`` with the arguments after it. Its exit code says to Spark whether it has failed."""


@dataclass(frozen=True)
class Submission:
    """The line, and what it needs."""

    command: str
    """For a shell."""
    py_files: str
    main: str


def submission(
    klog: Sequence[str],
    folder: Path,
    *,
    master: str,
    deploy_mode: str = "client",
    settings: Mapping[str, str] | None = None,
    name: str = "klog export",
    files: Sequence[Path] = (),
) -> Submission:
    """The spark-submit line that runs ``klog`` with these words; it writes a new zip in ``folder``.

    ``name`` is shown on the cluster. ``files`` are sent along, into the folder in which the driver runs.

    ``deploy_mode``: client or cluster; UsageError if the master cannot do it.
    """
    if deploy_mode == "cluster" and master.startswith(("local", "spark://")):
        raise UsageError(
            f"--deploy-mode cluster: Spark runs Python programs on {master} from the machine that submits them",
            hint="--deploy-mode client",
        )
    folder.mkdir(parents=True, exist_ok=True)
    archive = make_zip(folder.absolute())
    # Beside the zip, so that both can be copied to where the driver will run; and not where it lies in the package,
    # since a program's own folder comes first in its path, and modules there would stand for others of their name.
    program = folder.absolute() / "klog_submitted.py"
    program.write_text(PROGRAM, "utf-8")
    words = ["spark-submit", "--master", master, "--deploy-mode", deploy_mode, "--name", name]
    for name, value in sorted({**_defaults(master, deploy_mode), **(settings or {})}.items()):
        words += ["--conf", f"{name}={value}"]
    if files:
        words += ["--files", ",".join(str(one.absolute()) for one in files)]
    words += ["--py-files", str(archive), str(program), *klog]
    return Submission(shlex.join(words), str(archive), str(program))


def _defaults(master: str, deploy_mode: str) -> dict[str, str]:
    """What klog wants and Spark has otherwise."""
    found = {"spark.log.level": "WARN", "spark.task.maxFailures": "4"}
    if master.startswith("k8s://"):
        found["spark.kubernetes.container.image"] = "KLOG_IMAGE"
    if master == "yarn" and deploy_mode == "cluster":
        found["spark.yarn.maxAppAttempts"] = "1"  # what another attempt would do, the next run does
    return found


def run(submitted: Submission) -> int:
    """Run the line, with this process's streams; what it ended with. HostError where there is no spark-submit.

    The wheel's own is taken where none is on the path.
    """
    program, *arguments = shlex.split(submitted.command)
    found = shutil.which(program) or _of_the_wheel(program)
    if found is None:
        raise HostError("there is no spark-submit here", hint="pip install pyspark, or set the path to Spark's bin")
    environment = os.environ | {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    return subprocess.run([found, *arguments], env=environment, check=False).returncode


def _of_the_wheel(program: str) -> str | None:
    try:
        import pyspark
    except ImportError:
        return None
    path = Path(pyspark.__file__).parent / "bin" / program
    return str(path) if path.exists() else None
