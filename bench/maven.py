"""Apache Kafka's jars and those of Spark's connector to it, from their Maven artifacts, kept in a cache folder.

`klog` needs none of this: the jars are the peers of the bench and the reference servers and clients of the tests.
The folder is ``$KLOG_BENCH_CACHE`` or ``~/.cache/klog-bench``; a version's jars lie in its ``kafka-<version>/lib``,
the connector's in ``spark-kafka-<version>/lib``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>klog.bench</groupId><artifactId>kafka-peer</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
      <exclusions><exclusion><groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId></exclusion></exclusions>
    </dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version>
      <exclusions><exclusion><groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId></exclusion></exclusions>
    </dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
"""One logging back end only: slf4j-simple, which writes to stderr and whose level is a Java property."""

CONNECTOR_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>klog.bench</groupId><artifactId>spark-kafka-peer</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_ALONE = """\
    <dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>"""

CONNECTOR_VERSION = "4.2.0"
CONNECTOR = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
"""Each by itself: Scala, compression and logging come with Spark. There is no 4.3.0 of the connector, and of its own
companion for delegation tokens, which nothing here uses, no 4.2.0 that can be fetched."""

TABLES_SPARK_VERSION = "4.1.4"
TABLES = (
    ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),
    ("io.delta", "delta-spark_4.1_2.13", "4.4.0"),
    ("io.delta", "delta-storage", "4.4.0"),
    ("org.xerial", "sqlite-jdbc", "3.51.3.0"),
)
"""The newest of both formats, which are for Spark 4.1: Spark 4.3 cannot load Iceberg's classes, nor read by Delta's."""

HDFS = (
    ("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0"),
    ("org.junit.jupiter", "junit-jupiter-api", "5.11.4"),
    ("org.junit.platform", "junit-platform-commons", "1.11.4"),
    ("org.opentest4j", "opentest4j", "1.3.0"),
)
"""A name node and data nodes in one JVM, of the Hadoop whose client comes with pyspark 4.3."""

ACTIVEMQ_VERSION = "6.2.0"
ACTIVEMQ_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>klog.bench</groupId><artifactId>activemq-peer</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.activemq</groupId><artifactId>activemq-broker</artifactId><version>{version}</version>
    </dependency>
    <dependency><groupId>org.apache.activemq</groupId><artifactId>activemq-kahadb-store</artifactId>
      <version>{version}</version></dependency>
    <dependency><groupId>org.apache.activemq</groupId><artifactId>activemq-client</artifactId><version>{version}</version>
    </dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>2.0.16</version></dependency>
  </dependencies>
</project>
"""
"""ActiveMQ Classic: its broker, the store that it advises, and its own client."""

PERF_TEST_VERSION = "2.22.1"
PERF_TEST_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>klog.bench</groupId><artifactId>rabbitmq-perf-test</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>com.rabbitmq</groupId><artifactId>perf-test</artifactId><version>{version}</version></dependency>
  </dependencies>
</project>
"""
"""RabbitMQ's own load generator; the server is the system's."""

FRAMEWORKS_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>klog.bench</groupId><artifactId>kafka-frameworks</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId><version>{version}</version>
      <exclusions><exclusion><groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId></exclusion>
        <exclusion><groupId>org.apache.logging.log4j</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-file</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-mirror</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
"""What is built on Kafka's clients and comes with Kafka: Streams, Connect, MirrorMaker 2."""

ICEBERG_VERSION = "1.10.1"
REST_CATALOGUE_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>klog.bench</groupId><artifactId>rest-catalogue</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.iceberg</groupId><artifactId>iceberg-core</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.apache.iceberg</groupId><artifactId>iceberg-core</artifactId><version>{version}</version>
      <classifier>tests</classifier></dependency>
    <dependency><groupId>org.eclipse.jetty</groupId><artifactId>jetty-servlet</artifactId><version>11.0.26</version></dependency>
    <dependency><groupId>org.xerial</groupId><artifactId>sqlite-jdbc</artifactId><version>3.51.3.0</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>2.0.16</version></dependency>
  </dependencies>
</project>
"""
"""The REST catalogue that Iceberg tests its own clients against."""

MAVEN_TIMEOUT_S = 600


class PeerMissing(Exception):
    """A peer cannot be had on this machine; the message says why. The bench goes on without it."""


@dataclass(frozen=True)
class JavaTools:
    """A Kafka version's jars and the main classes of its command-line clients (they moved between 3.9 and 4.x)."""

    version: str
    lib: Path

    @property
    def class_path(self) -> str:
        """For ``java -cp``; Java itself expands the star."""
        return f"{self.lib}/*"

    @property
    def console_producer(self) -> str:
        return (
            "kafka.tools.ConsoleProducer" if self.version.startswith("3.") else "org.apache.kafka.tools.ConsoleProducer"
        )

    @property
    def console_consumer(self) -> str:
        return "org.apache.kafka.tools.consumer.ConsoleConsumer"

    @property
    def topic_command(self) -> str:
        return "org.apache.kafka.tools.TopicCommand"

    @property
    def get_offsets(self) -> str:
        return "org.apache.kafka.tools.GetOffsetShell"

    def command(self, main_class: str, *arguments: str, heap: str = "-Xmx256m") -> list[str]:
        """A command line for one of the tools, quick to start and quiet unless something is wrong."""
        quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        return ["java", heap, *quick, "-cp", self.class_path, main_class, *arguments]


VERSIONS = {"kafka-4.1": "4.1.1", "kafka-3.9": "3.9.1"}
"""The releases that stand for the two lines that clients meet today: KRaft's, and the last with ZooKeeper."""


def cache_folder() -> Path:
    return Path(os.environ.get("KLOG_BENCH_CACHE") or "~/.cache/klog-bench").expanduser()


def java_tools(name: str, cache: Path | None = None) -> JavaTools:
    """The jars of ``kafka-4.1`` or ``kafka-3.9``, fetched on the first call; PeerMissing where they cannot be had."""
    version = VERSIONS[name]
    if shutil.which("java") is None:
        raise PeerMissing(f"{name}: no java on the path")
    home = (cache or cache_folder()) / f"kafka-{version}"
    lib = home / "lib"
    if not lib.is_dir():
        _fetch(f"kafka {version}", POM.format(version=version), home)
    return JavaTools(version, lib)


def connector_jars(cache: Path | None = None) -> list[Path]:
    """The jars of Spark's own Kafka connector (10 MB), fetched on the first call; PeerMissing as `java_tools`."""
    return _lone_jars("Spark's Kafka connector", CONNECTOR, f"spark-kafka-{CONNECTOR_VERSION}", cache)


def table_jars(cache: Path | None = None) -> list[Path]:
    """What Spark reads Iceberg and Delta Lake by (60 MB); fetched and missing as `connector_jars`."""
    return _lone_jars("Spark's table formats", TABLES, f"spark-tables-{TABLES[0][2]}", cache)


def hdfs_jars(cache: Path | None = None) -> list[Path]:
    """Hadoop's servers for tests (56 MB), beside pyspark's jars; fetched and missing as `connector_jars`."""
    return _lone_jars("HDFS", HDFS, f"hdfs-{HDFS[0][2]}", cache)


def activemq_lib(cache: Path | None = None) -> Path:
    """The folder of ActiveMQ's jars, fetched on the first call; PeerMissing as `java_tools`."""
    return _jars_of("ActiveMQ", ACTIVEMQ_VERSION, ACTIVEMQ_POM, "activemq", cache)


def perf_test_lib(cache: Path | None = None) -> Path:
    """The folder of the jars of RabbitMQ's PerfTest, fetched on the first call; PeerMissing as `java_tools`."""
    return _jars_of("RabbitMQ PerfTest", PERF_TEST_VERSION, PERF_TEST_POM, "rabbitmq-perf-test", cache)


def rest_catalogue_lib(cache: Path | None = None) -> Path:
    """The folder of the jars of Iceberg's own REST catalogue (25 MB), which needs Hadoop's client beside them, as
    pyspark has it; fetched on the first call; PeerMissing as `java_tools`."""
    return _jars_of("Iceberg's REST catalogue", ICEBERG_VERSION, REST_CATALOGUE_POM, "iceberg-rest", cache)


def frameworks(cache: Path | None = None) -> JavaTools:
    """Kafka Streams, Connect and MirrorMaker 2 of 3.9, fetched on the first call; PeerMissing as `java_tools`."""
    version = VERSIONS["kafka-3.9"]
    return JavaTools(version, _jars_of("Kafka's frameworks", version, FRAMEWORKS_POM, "kafka-frameworks", cache))


def _lone_jars(what: str, artifacts: Sequence[tuple[str, str, str]], folder: str, cache: Path | None) -> list[Path]:
    home = (cache or cache_folder()) / folder
    if not (home / "lib").is_dir():
        dependencies = "\n".join(_ALONE.format(*artifact) for artifact in artifacts)
        _fetch(f"{what} {artifacts[0][2]}", CONNECTOR_POM.format(dependencies=dependencies), home)
    return sorted((home / "lib").glob("*.jar"))


def _jars_of(what: str, version: str, pom: str, folder: str, cache: Path | None) -> Path:
    if shutil.which("java") is None:
        raise PeerMissing(f"{what}: no java on the path")
    home = (cache or cache_folder()) / f"{folder}-{version}"
    if not (home / "lib").is_dir():
        _fetch(f"{what} {version}", pom.format(version=version), home)
    return home / "lib"


def _fetch(what: str, project: str, home: Path) -> None:
    """Copies into a folder beside the final one and renames it, so that a cut-off fetch leaves no half a class path."""
    if shutil.which("mvn") is None:
        raise PeerMissing(f"{what}: its jars are not in {home} and there is no mvn to fetch them")
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix="fetch-") as work:
        pom = Path(work, "pom.xml")
        pom.write_text(project)
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={work}/lib"]
        try:
            done = subprocess.run(
                [*command, "-DincludeScope=runtime"],
                capture_output=True,
                text=True,
                timeout=MAVEN_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PeerMissing(f"{what}: mvn did not end within {MAVEN_TIMEOUT_S} s") from None
        if done.returncode != 0:
            reason = (done.stdout + done.stderr).strip().splitlines()
            raise PeerMissing(f"{what}: mvn failed: {reason[0] if reason else 'no output'}")
        try:
            Path(work, "lib").rename(home / "lib")
        except OSError:
            if not (home / "lib").is_dir():  # else another process fetched the same jars meanwhile: they serve as well
                raise
