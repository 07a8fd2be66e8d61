"""Apache Kafka's jars, from its Maven artifacts, kept in a cache folder.

`klog` needs none of this: the jars are the peers of the bench and the reference servers and clients of the tests.
The folder is ``$KLOG_BENCH_CACHE`` or ``~/.cache/klog-bench``; a version's jars lie in its ``kafka-<version>/lib``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
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

    @property
    def producer_performance(self) -> str:
        return "org.apache.kafka.tools.ProducerPerformance"

    @property
    def consumer_performance(self) -> str:
        return "org.apache.kafka.tools.ConsumerPerformance"

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
        _fetch(version, home)
    return JavaTools(version, lib)


def _fetch(version: str, home: Path) -> None:
    """Copies into a folder beside the final one and renames it, so that a cut-off fetch leaves no half a class path."""
    if shutil.which("mvn") is None:
        raise PeerMissing(f"kafka {version}: its jars are not in {home} and there is no mvn to fetch them")
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix="fetch-") as work:
        pom = Path(work, "pom.xml")
        pom.write_text(POM.format(version=version))
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
            raise PeerMissing(f"kafka {version}: mvn did not end within {MAVEN_TIMEOUT_S} s") from None
        if done.returncode != 0:
            reason = (done.stdout + done.stderr).strip().splitlines()
            raise PeerMissing(f"kafka {version}: mvn failed: {reason[0] if reason else 'no output'}")
        try:
            Path(work, "lib").rename(home / "lib")
        except OSError:
            if not (home / "lib").is_dir():  # else another process fetched the same jars meanwhile: they serve as well
                raise
