"""The Spark session that klog starts if there is none yet: on this machine, a cluster's, or a Connect server's.

Strategy: Spark is configured to be quiet, to listen on this machine alone and to find klog where this process found it.
What the JVM still prints (greetings, warnings about the host's name) goes to a file in the session's scratch
folder, which is shown when Spark does not start and removed when this process ends.

On a cluster this process is the driver, the machines get klog as a zip, and whether they can run it is found out before
anything is written (`klog.spark.running.workers`). Under spark-submit, Spark is already configured.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from klog.errors import CannotConnect, JavaMissing, KlogError
from klog.spark.running import jvm
from klog.spark.running.package import HOME

MASTER = "local[*,4]"
"""All cores of this machine; a task may fail three times (Spark's own default for local masters is never)."""

MASTER_TIMEOUT_S = 10

LOG_LEVEL = "ERROR"

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

    ``settings`` go over klog's own. JavaMissing, with what Java or Spark said, where the JVM does not start; where the
    master is a cluster's, CannotConnect where it gives no executor, HostError where one cannot run klog.
    """
    jvm.forget_dead()
    from pyspark.sql import SparkSession

    from klog.spark.source import KlogDataSource

    session = SparkSession.getActiveSession() or _new_session(master, settings or {})
    session.dataSource.register(KlogDataSource)
    return session


def is_submitted() -> bool:
    """Whether spark-submit has started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _new_session(master: str | None, settings: dict[str, str]) -> Any:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    submitted = is_submitted() and master is None
    local = not submitted and (master or MASTER).startswith("local")
    if not submitted and (master or "").startswith("spark://"):
        check_master(str(master))
    prepare_environment(settings, local=local)
    scratch = scratch_folder()
    builder = SparkSession.builder.appName("klog")
    if not submitted:
        builder = builder.master(master or MASTER)
    for name, value in {**settings_of(scratch, local=local, submitted=submitted), **settings}.items():
        builder = builder.config(name, value)
    log = scratch / "spark.log"
    try:
        with nullcontext() if submitted else _stderr_to(log):  # the JVM keeps it for its whole life
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel(LOG_LEVEL)
    except (PySparkException, Py4JError, OSError) as error:
        raise not_started(master, str(error), log) from None
    if not local:
        from klog.spark.running.package import make_zip
        from klog.spark.running.workers import check_workers, wait_for_executors

        context = session.sparkContext
        if not submitted:
            context.addPyFile(str(make_zip(scratch)))
        if not context.master.startswith("local"):
            wait_for_executors(context)
            check_workers(session, 2 * context.defaultParallelism)
    return session


def check_master(master: str) -> None:
    """CannotConnect if no server listens at ``spark://host:port[,host:port]``: Spark tries for a minute and a half."""
    said: Exception | None = None
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), MASTER_TIMEOUT_S).close()
            return
        except (OSError, ValueError) as error:
            said = error
    raise CannotConnect(
        f"no Spark master at {master}: {said}", hint="like spark://host:7077; its own page shows its URL"
    )


def not_started(master: str | None, said: str, log: Path) -> KlogError:
    """Why there is no session: of Java, or of a cluster that is not there."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    words = [line.lstrip(": ") for line in said.strip().splitlines() if not line.startswith("An error occurred while")]
    first = words[0] if words else said
    if any("JAVA_HOME is not set" in line or "java: " in line for line in lines) or not lines or master is None:
        return JavaMissing(
            "Spark does not start: " + " / ".join([first, *lines[-5:]]),
            hint="Spark needs Java 17 or later; Debian, Ubuntu: apt install openjdk-17-jre-headless",
        )
    reasons = [line for line in lines if "rror" in line or "xception" in line]
    return CannotConnect(
        f"Spark does not start on {master}: " + " / ".join([first, *reasons[-3:]]),
        hint="is the cluster there, and of this version of Spark? Its settings: HADOOP_CONF_DIR, --conf",
    )


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


def prepare_environment(settings: Mapping[str, str], *, local: bool) -> None:
    """Workers run ``python3`` from PATH unless told, and must find klog wherever this process found it."""
    os.environ.setdefault("PYSPARK_PYTHON", settings.get("spark.pyspark.python", sys.executable))
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    home = str(HOME)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if home not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [home, *paths]))


def scratch_folder() -> Path:
    """A new one, which goes when this process ends."""
    scratch = Path(tempfile.mkdtemp(prefix="klog-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return scratch


def settings_of(scratch: Path, *, local: bool, submitted: bool) -> dict[str, str]:
    """klog's own: quiet, on this machine alone, with ``scratch`` for what Spark puts on disk."""
    common = {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
    }
    if submitted:
        return common
    logging = scratch / "log4j2.properties"
    logging.write_text(_LOGGING)
    common["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={logging} {jvm.QUIET_FLAGS}"
    common["spark.ui.enabled"] = "false"
    if not local:
        return common
    return common | {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.python.daemon.module": "klog.spark.running.daemon",
    }
