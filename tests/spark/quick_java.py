"""Java that starts Spark quickly: the tests do so some thirty times, and have little for it to do.

The classes that Spark loads are kept in an archive, as ZooKeeper's are (`klog.coordination.embedded`), which takes more
than a third of the processor time from each start. Whoever starts Spark first writes it, which costs as much as two or
three starts; others go without meanwhile. The JVM checks that an archive fits and ignores it where it does not.

    python -m tests.spark.quick_java      starts Spark once, in a JVM that may write an archive as it ends
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyspark

from klog.coordination.java import find_java
from klog.errors import JavaMissing
from tests.broker_fixture import ROOT
from tests.zookeeper_fixture import klog_home

JVM_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Half the processor time of a short run; a long one would be slower."""

WRITE_S = 90.0
KEPT = 3
"""Archives of so many versions, or checkouts: each is of 180 MB."""


def spark_environment() -> dict[str, str]:
    """What to add to the environment of a process that starts Spark, its servers, or klog that does."""
    archive = " ".join(class_archive())
    return {
        "JAVA_TOOL_OPTIONS": JVM_QUICK_START,  # of all JVMs below it, ZooKeeper's too
        "SPARK_SUBMIT_OPTS": archive,
        "SPARK_DAEMON_JAVA_OPTS": archive,
    }


def class_archive() -> list[str]:
    """Flags of a JVM with Spark's class path: with the archive, or none where it cannot be had now."""
    try:
        stem = _stem()
        folder = klog_home() / "cache-of-tests"  # not beside the small ones, which tests copy
        folder.mkdir(parents=True, exist_ok=True)
        if not (found := list(folder.glob(f"{stem}-*.jsa"))):
            with (folder / f"{stem}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found = list(folder.glob(f"{stem}-*.jsa")) or _written(folder, stem)
    except (OSError, JavaMissing):  # another writes it, or nobody can
        return []
    # Its name has its size: one that was cut off would be mapped all the same, and the JVM die of it.
    return [f"-XX:SharedArchiveFile={one}" for one in found if one.stem == f"{stem}-{one.stat().st_size}"][:1]


@cache
def _stem() -> str:
    """A name that holds all that an archive depends on."""
    java = find_java()
    key = hashlib.sha256(f"{java.version} {java.executable.resolve()} {JVM_QUICK_START}".encode())
    for jar in sorted((Path(pyspark.__file__).parent / "jars").iterdir()):
        status = jar.stat()
        key.update(f"{jar} {status.st_size} {status.st_mtime_ns}".encode())
    return f"spark-{key.hexdigest()[:16]}"


@cache  # tried once: where it fails it would fail again
def _written(folder: Path, stem: str) -> list[Path]:
    part = folder / f"{stem}.{os.getpid()}.part"
    try:
        for old in sorted(folder.glob("spark-*.jsa"), key=lambda one: one.stat().st_mtime)[: 1 - KEPT]:
            old.unlink()
        subprocess.run(
            [sys.executable, "-m", "tests.spark.quick_java"],
            cwd=ROOT,
            env=os.environ
            | {"JAVA_TOOL_OPTIONS": JVM_QUICK_START, "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={part}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=WRITE_S,
            check=True,
        )
        return [part.replace(folder / f"{stem}-{part.stat().st_size}.jsa")]
    except (OSError, subprocess.SubprocessError):
        with suppress(OSError):
            part.unlink()
        return []


def main() -> None:
    """A little of what exports and queries load: tasks of Python's, a shuffle, files written and read."""
    from pyspark import SparkContext

    from klog.spark.running.session import start_session

    spark = start_session("local[1]", {"spark.sql.shuffle.partitions": "1"})
    jvm = vars(SparkContext._gateway)["proc"]
    frame = spark.range(10).mapInArrow(lambda batches: batches, "id long")
    with tempfile.TemporaryDirectory() as folder:
        frame.groupBy("id").count().write.parquet(f"{folder}/counts")
        spark.read.parquet(f"{folder}/counts").collect()
    spark.stop()
    jvm.stdin.close()  # it ends when there is nothing more to hear, and writes what it has loaded
    sys.exit(jvm.wait())


if __name__ == "__main__":
    main()
