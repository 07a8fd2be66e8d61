"""The JVM that this process has started for Spark: how it has ended, and going on without it.

PySpark keeps its context, its session and its way to the JVM in class attributes and never looks whether that JVM still
lives. Once it has been killed (where memory is short, it is what the kernel takes), all that is asked of it fails, for
ever. Who follows a topic outlives that: what PySpark keeps is dropped, and the next session starts another JVM.

Limits: a JVM that has started this process (spark-submit) is not ours to start again, nor is a Connect server.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

QUIET_FLAGS = "-XX:-UsePerfData -Xlog:disable"
"""Without them the JVM writes its own warnings to standard output, among a command's rows."""


def ending(wait_s: float = 0.0) -> str | None:
    """How it has ended, like ``was ended by SIGKILL``; None where it lives still after ``wait_s``, or there is none."""
    if "pyspark" not in sys.modules:  # it takes a while, and a run that finds nothing new does without
        return None
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = None if gateway is None else vars(gateway).get("proc")
    if process is None:
        return None
    try:
        code = process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"has ended with exit code {code}"


def forget_dead() -> None:
    """Make PySpark as it was before there was a JVM, if that has ended; nothing where it lives or there is none."""
    if ending() is None:
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    gateway: Any = SparkContext._gateway
    context = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None  # the JVM is gone
        context.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
