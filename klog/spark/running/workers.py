"""Whether the machines that tasks run on can do what this one plans: asked before anything is written.

Strategy: a job whose tasks do nothing but look at their own Python. It goes the way that the export's tasks will go,
with the same shipped klog, so that what would fail there fails here, in words. More tasks than cores, since Spark sends
no task to a given machine; and each task of the export looks once more.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any

from klog.errors import CannotConnect, HostError, KlogError
from klog.spark.short_errors import first_line
from klog.spark.tasks import Versions, check_worker

EXECUTORS_WAIT_S = 120
"""For the first executor of a cluster. A cluster that is full, or of another version, never gives one."""

TASKS = 8
"""Where the number of cores cannot be asked for (Connect)."""

_INSTALL = "install the same on all machines, or ship one environment: spark.archives and PYSPARK_PYTHON"
_SAYINGS = (
    (re.compile(r"\[PYTHON_VERSION_MISMATCH\][^\n]*"), _INSTALL),
    (re.compile(r"Cannot run program \"[^\n\"]*\"[^\n]*"), "set PYSPARK_PYTHON to a Python that is on every machine"),
    (re.compile(r"(?:ModuleNotFoundError|ImportError): [^\n]*"), _INSTALL),
    (
        re.compile(r"java\.io\.InvalidClassException[^\n]*"),
        "the cluster's Spark must have the same version as this one",
    ),
)
_KLOG_SAYS = re.compile(r"klog\.errors\.\w+: ([^\n]*)")


def check_workers(where: Any, tasks: int = TASKS) -> None:
    """HostError, saying which machine lacks what, where a worker cannot run what this process plans.

    ``where``: a context, or a session of Connect, which has none (and needs pandas here for its `mapInArrow`).
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    planned = Versions.here()

    def look(given: Iterator[Any]) -> Iterator[Any]:
        check_worker(planned)
        yield from given

    try:
        if hasattr(where, "parallelize"):
            where.parallelize(range(tasks), tasks).mapPartitions(look).collect()
        else:
            where.range(0, tasks, 1, tasks).mapInArrow(look, "id bigint").collect()
    except (PySparkException, Py4JError) as error:
        raise explained(str(error)) from error


def explained(text: str) -> KlogError:
    """What a failed task has said, with what to do about it."""
    found = _KLOG_SAYS.findall(text)
    if found:
        return HostError(found[-1], hint=_INSTALL)
    for pattern, hint in _SAYINGS:
        match = pattern.search(text)
        if match:
            return HostError(f"Spark's workers cannot run klog: {match[0]}", hint=hint)
    return HostError(f"Spark's workers cannot run klog: {first_line(text)}")


def wait_for_executors(context: Any, timeout_s: float = EXECUTORS_WAIT_S) -> None:
    """Until one has come; CannotConnect where none does. Spark itself waits for ever."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # the first is the driver
        if time.monotonic() > deadline:
            raise CannotConnect(
                f"{context.master} has given no executor within {timeout_s:.0f} s",
                hint="is it full, of another version of Spark, or asked for more memory than a worker has "
                "(--conf spark.executor.memory=1g)? Its own page shows",
            )
        pause.wait(0.1)
