"""The Spark session that klog starts when nobody else has one."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from klog.errors import JavaMissing

MASTER = "local[*,4]"
"""All cores of this machine; a task may fail three times (Spark's own default for local masters is never)."""

LOG_LEVEL = "ERROR"

_LOGGING = f"""\
rootLogger.level = {LOG_LEVEL.lower()}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p spark: %m%n
"""


def start_session(master: str | None = None, settings: dict[str, str] | None = None) -> Any:
    """The running session, or a new one that knows ``format("klog")``. JavaMissing where the JVM does not start."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from klog.spark.source import KlogDataSource

    _prepare_environment()
    builder = SparkSession.builder.appName("klog").master(master or MASTER)
    for name, value in {**_settings(), **(settings or {})}.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise JavaMissing(
            f"Spark does not start: {str(error).splitlines()[0]}",
            hint="Spark needs Java 17 or later; on Debian: apt-get install openjdk-17-jre-headless",
        ) from None
    session.sparkContext.setLogLevel(LOG_LEVEL)
    session.dataSource.register(KlogDataSource)
    return session


def _prepare_environment() -> None:
    """Workers run ``python3`` from PATH unless told, and must find klog wherever this process found it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    home = str(Path(__file__).resolve().parent.parent.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if home not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [home, *paths]))


def _settings() -> dict[str, str]:
    scratch = tempfile.mkdtemp(prefix="klog-spark-")
    logging = Path(scratch, "log4j2.properties")
    logging.write_text(_LOGGING)
    java = f"-Dlog4j2.configurationFile={logging} -XX:TieredStopAtLevel=4 -Dderby.system.home={scratch}"
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": java,
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": scratch,
        "spark.sql.session.timeZone": "UTC",
        # INT96, the default, is deprecated, and not every reader knows it. CORRECTED: times before 1900 are no error.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
