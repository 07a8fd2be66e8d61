"""The Spark context of an export whose tasks write files themselves: Spark schedules and repeats, and has no query.

Strategy: most of the time of a small export is the start of Spark's JVM. So there is no SQL session, with its
parsers and four more Python processes that plan a source; the JVM compiles once and quickly, and maps an archive of the
classes that it will load (`klog.coordination.class_archive`); and what this process has still to import, it imports
while the JVM starts. A session that is started later runs on the same context.

Limits: this is for this machine's cores. On a cluster, and under spark-submit, there is the session's context.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from klog.coordination.class_archive import NONE, ClassArchive, open_archive
from klog.coordination.java import find_java
from klog.errors import JavaMissing
from klog.spark.running import jvm
from klog.spark.running.session import (
    LOG_LEVEL,
    MASTER,
    is_submitted,
    not_started,
    prepare_environment,
    scratch_folder,
    settings_of,
    start_session,
)

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Half the processor time of a start. A JVM that moves rows would be slower by it; this one only schedules."""

OTHER_CLASS_PATH = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Where one of these is set, the class path has folders, and the JVM archives nothing from a path with folders."""
OTHER_FLAGS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Flags by which the user decides how JVMs start: then klog adds nothing of its own."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"


def start_context(master: str | None, settings: dict[str, str], cache: Path | None) -> Any:
    """The running context, or a new one; errors as `klog.spark.running.session.start_session`.

    ``cache`` is a folder for the archive of classes; None: neither read nor written.
    """
    jvm.forget_dead()
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    if is_submitted() or not (master or MASTER).startswith("local"):
        return start_session(master, settings).sparkContext
    return _new_context(master or MASTER, settings, cache)


def _new_context(master: str, settings: dict[str, str], cache: Path | None) -> Any:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    prepare_environment(settings, local=True)
    scratch = scratch_folder()
    wanted = settings_of(scratch, local=True, submitted=False)
    archive = open_spark_archive(cache, f"{QUICK_START} {settings.get(_CLASS_PATH, '')}")
    if not _is_set(OTHER_FLAGS):
        wanted[_JAVA_OPTIONS] += " ".join(["", QUICK_START, *archive.flags])
    conf = SparkConf(loadDefaults=False)
    for name, value in {**wanted, **settings, "spark.master": master, "spark.app.name": "klog"}.items():
        conf.set(name, value)
    log = scratch / "spark.log"
    meanwhile = threading.Thread(target=_import_what_exports_need, name="imports")
    meanwhile.start()
    try:
        # The JVM keeps these for its whole life, which is longer than the command's, whose stdout is for rows.
        with log.open("ab") as errors:
            gateway = (
                None
                if SparkContext._gateway is not None
                else launch_gateway(conf, {"stdout": errors, "stderr": errors, "pass_fds": archive.locks})
            )
        context = SparkContext(conf=conf, gateway=gateway)
        context.setLogLevel(LOG_LEVEL)
    except (PySparkException, Py4JError, OSError) as error:
        raise not_started(master, str(error), log) from None
    finally:
        archive.close()
        meanwhile.join()
    return context


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
