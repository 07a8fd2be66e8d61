"""Where Spark is to run, and the context or session there: this machine's, a cluster's, or a Connect server's.

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
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klog.coordination.class_archive import NONE, ClassArchive, open_archive
from klog.coordination.java import find_java
from klog.errors import CannotConnect, JavaMissing, KlogError, UsageError
from klog.spark.running import jvm
from klog.spark.running.package import HOME
from klog.spark.short_errors import first_line

MASTER = "local[*,4]"
"""All cores of this machine; a task may fail three times (Spark's own default for local masters is never)."""

MASTER_TIMEOUT_S = 10

LOG_LEVEL = "ERROR"

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Half the processor time of a start. A JVM that moves rows would be slower by it; one that only schedules is not."""

OTHER_CLASS_PATH = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Where one of these is set, the class path has folders, and the JVM archives nothing from a path with folders."""
OTHER_FLAGS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Flags by which the user decides how JVMs start: then klog adds nothing of its own."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_LOGGING = f"""\
rootLogger.level = {LOG_LEVEL.lower()}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d %p %c: %m%n
"""


@dataclass(frozen=True)
class SparkTarget:
    """Where Spark is to run, as a command's options say it."""

    master: str | None = None
    """Spark's; None: this machine's cores, or spark-submit's master."""
    remote: str | None = None
    """A Connect server, ``sc://host:port``, instead of a master."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """``spark.*``, over klog's own."""
    cache: Path | None = None
    """A folder where the archive of the JVM's classes is kept for later starts; None: there is none."""

    @property
    def has_context(self) -> bool:
        """Whether tasks can be given to Spark without a query; a Connect server takes queries alone."""
        return self.remote is None

    def context(self) -> Any:
        """The running context, or a new one, with no session if there is no need of one. Errors as `session`."""
        if not self.has_context:
            raise UsageError(f"--remote {self.remote}: a Connect server has no context")
        return start_context(self.master, dict(self.settings), quick=True, cache=self.cache)

    def session(self) -> Any:
        """The running session, or a new one, that knows ``format("klog")``.

        Errors of `start_session` and `connect_session`; UsageError where both a master and a server are named.
        """
        if self.remote is None:
            return start_session(self.master, dict(self.settings))
        if self.master is not None:
            raise UsageError("--master and --remote exclude each other", hint="a Connect server has its own master")
        from klog.spark.running.connect import connect_session

        return connect_session(self.remote, self.settings)


def start_session(master: str | None = None, settings: dict[str, str] | None = None) -> Any:
    """The running session, or a new one, that knows ``format("klog")``.

    ``settings`` go over klog's own. JavaMissing, with what Java or Spark said, where the JVM does not start; where the
    master is a cluster's, CannotConnect where it gives no executor, HostError where one cannot run klog.
    """
    jvm.forget_dead()
    from pyspark.sql import SparkSession

    from klog.spark.source import KlogDataSource

    session = SparkSession.getActiveSession()
    if session is None:
        start_context(master, settings or {})
        session = SparkSession.builder.config(map=dict(settings or {})).getOrCreate()
    session.dataSource.register(KlogDataSource)
    return session


def start_context(
    master: str | None, settings: dict[str, str], *, quick: bool = False, cache: Path | None = None
) -> Any:
    """The running context, or a new one; errors as `start_session`.

    ``quick``: on this machine's cores, for tasks that write files themselves. Most of the time of a small export is the
    start of the JVM. So it compiles once and quickly, and maps an archive of the classes that it will load, in the
    folder ``cache`` (None: neither read nor written); and what this process has still to import, it imports meanwhile.
    """
    jvm.forget_dead()
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    submitted = is_submitted() and master is None
    local = not submitted and (master or MASTER).startswith("local")
    if not submitted and (master or "").startswith("spark://"):
        check_master(str(master))
    prepare_environment(settings, local=local)
    scratch = scratch_folder()
    wanted = settings_of(scratch, local=local, submitted=submitted)
    archive, meanwhile = NONE, threading.Thread(target=_import_what_exports_need, name="imports")
    if quick and local:
        archive = open_spark_archive(cache, f"{QUICK_START} {settings.get('spark.driver.extraClassPath', '')}")
        if not _is_set(OTHER_FLAGS):
            wanted[_JAVA_OPTIONS] += " ".join(["", QUICK_START, *archive.flags])
        meanwhile.start()
    conf = SparkConf().setAppName("klog").setAll([*{**wanted, **settings}.items()])
    if not submitted:
        conf.setMaster(master or MASTER)
    log = scratch / "spark.log"
    try:
        gateway = None
        if SparkContext._gateway is None and not is_submitted():
            # The JVM keeps these for its whole life, which is longer than the command's, whose stdout is for rows.
            with log.open("ab") as errors:
                gateway = launch_gateway(conf, {"stdout": errors, "stderr": errors, "pass_fds": archive.locks})
        context = SparkContext(conf=conf, gateway=gateway)
        context.setLogLevel(LOG_LEVEL)
    except (PySparkException, Py4JError, OSError) as error:
        raise not_started((master or MASTER) if quick else master, str(error), log) from None
    finally:
        archive.close()
        if meanwhile.ident is not None:
            meanwhile.join()
    if not local:
        _ready_cluster(context, None if submitted else scratch)
    return context


def _ready_cluster(context: Any, scratch: Path | None) -> None:
    """Ship klog (in ``scratch``; None: spark-submit has shipped it), and find out whether the machines can run it."""
    from klog.spark.running.package import make_zip
    from klog.spark.running.workers import check_workers, wait_for_executors

    if scratch is not None:
        context.addPyFile(str(make_zip(scratch)))
    if not context.master.startswith("local"):
        wait_for_executors(context)
        check_workers(context, 2 * context.defaultParallelism)


def is_submitted() -> bool:
    """Whether spark-submit has started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def open_spark_archive(cache: Path | None, also: str) -> ClassArchive:
    """The archive of the JVM's classes, or none where the environment decides on flags or the class path."""
    import pyspark

    if _is_set((*OTHER_FLAGS, *OTHER_CLASS_PATH)):
        return NONE
    try:
        return open_archive(cache, "spark", find_java(), Path(pyspark.__file__).parent.glob("jars/*"), also)
    except JavaMissing:
        return NONE


def _is_set(names: tuple[str, ...]) -> bool:
    return any(os.environ.get(name) for name in names)


def _import_what_exports_need() -> None:
    """Where an import fails, the step that needs it reports the error."""
    try:
        import pyarrow.parquet  # noqa: F401

        import klog.spark.files  # noqa: F401
    except ImportError:
        pass


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
    first = first_line(said)
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
    common[_JAVA_OPTIONS] = f"-Dlog4j2.configurationFile={logging} {jvm.QUIET_FLAGS}"
    common["spark.ui.enabled"] = "false"
    if not local:
        return common
    return common | {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.python.daemon.module": "klog.spark.running.daemon",
    }
