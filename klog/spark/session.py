"""The Spark session that klog starts when nobody else has one.

Strategy: Spark is told to be quiet, to listen on this machine alone and to find klog wherever this process found it.
What the JVM prints all the same (greetings, warnings about the host's name) goes to a file in the session's scratch
folder, which is shown when Spark does not start and removed when this process ends.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from klog.errors import JavaMissing

MASTER = "local[*,4]"
"""All cores of this machine; a task may fail three times (Spark's own default for local masters is never)."""

LOG_LEVEL = "ERROR"

JVM_FLAGS = "-XX:-UsePerfData -Xlog:disable"
"""The JVM writes warnings of its own to standard output, among a command's rows, unless it is told not to."""

_LOGGING = f"""\
rootLogger.level = {LOG_LEVEL.lower()}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d %p %c: %m%n
"""


def start_session(master: str | None = None, settings: dict[str, str] | None = None) -> Any:
    """The running session, or a new one, that knows ``format("klog")``.

    ``settings`` go over klog's own. JavaMissing, with what Java or Spark said, where the JVM does not start.
    """
    from pyspark.sql import SparkSession

    from klog.spark.parquet import ParquetFiles
    from klog.spark.source import KlogDataSource

    session = SparkSession.getActiveSession() or _new_session(master, settings or {})
    session.dataSource.register(KlogDataSource)
    session.dataSource.register(ParquetFiles)
    return session


def _new_session(master: str | None, settings: dict[str, str]) -> Any:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    _prepare_environment()
    scratch = Path(tempfile.mkdtemp(prefix="klog-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    builder = SparkSession.builder.appName("klog").master(master or MASTER)
    for name, value in {**_settings(scratch), **settings}.items():
        builder = builder.config(name, value)
    log = scratch / "spark.log"
    try:
        with _stderr_to(log):  # the JVM keeps it for its whole life
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel(LOG_LEVEL)
    except (PySparkException, OSError) as error:
        said = log.read_text(errors="replace").strip().splitlines()[-5:] if log.exists() else []
        raise JavaMissing(
            "Spark does not start: " + " / ".join([str(error).strip().splitlines()[0], *said]),
            hint="Spark needs Java 17 or later; Debian, Ubuntu: apt install openjdk-17-jre-headless",
        ) from None
    return session


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Processes started meanwhile have ``path`` for their standard error."""
    sys.stderr.flush()
    kept = os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)


def _prepare_environment() -> None:
    """Workers run ``python3`` from PATH unless told, and must find klog wherever this process found it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    home = str(Path(__file__).resolve().parent.parent.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if home not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [home, *paths]))


def _settings(scratch: Path) -> dict[str, str]:
    logging = scratch / "log4j2.properties"
    logging.write_text(_LOGGING)
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging} {JVM_FLAGS}",
        "spark.local.dir": str(scratch),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
    }
