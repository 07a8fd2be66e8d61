"""Spark's quick start: the archive of its JVM's classes, the context without a session, compiled workers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from klog.coordination.class_archive import NONE, TRIES, ClassArchive
from klog.coordination.java import find_java
from klog.errors import UsageError
from klog.spark.running.daemon import without_zips
from klog.spark.running.session import OTHER_CLASS_PATH, OTHER_FLAGS, SparkTarget, open_spark_archive
from tests.broker_fixture import ROOT
from tests.until import until

JARS = Path(pyspark.__file__).parent / "jars"
WRITTEN_S = 60.0


@pytest.fixture(autouse=True)
def untuned(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*OTHER_FLAGS, *OTHER_CLASS_PATH):
        monkeypatch.delenv(name, raising=False)


def opened(cache: Path) -> ClassArchive:
    return open_spark_archive(cache, "")


def part_of(cache: Path) -> Path:
    """Where the archive is to be written, as the flags of a start that writes say it; that start fails at once."""
    archive = opened(cache)
    archive.close()
    return Path(archive.flags[0].removeprefix("-XX:ArchiveClassesAtExit="))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the JVM writes: a small program's classes, out of Spark's jars."""
    written = tmp_path_factory.mktemp("archive") / "written.jsa"
    java = str(find_java().executable)
    flags = [f"-XX:ArchiveClassesAtExit={written}", "-Xlog:disable", "-cp", f"{JARS}/*"]
    done = subprocess.run(
        [java, *flags, "org.apache.spark.launcher.Main"], capture_output=True, check=False, timeout=WRITTEN_S
    )
    assert written.exists(), done
    return written


def test_what_a_jvm_has_written_serves_the_next(tmp_path: Path, archive: Path) -> None:
    shutil.copy(archive, part_of(tmp_path))
    found = opened(tmp_path)
    (kept,) = tmp_path.glob("*.jsa")
    assert (found.flags[0], found.lock) == (f"-XX:SharedArchiveFile={kept}", None)
    assert not list(tmp_path.glob("*.part"))
    assert opened(tmp_path) == found


def test_one_writes_and_others_do_without(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    assert writer.lock is not None
    assert opened(tmp_path) == NONE
    writer.close()
    assert opened(tmp_path) != NONE


def test_a_jvm_that_was_killed_while_it_wrote_leaves_nothing_that_is_used(tmp_path: Path, archive: Path) -> None:
    part = part_of(tmp_path)
    part.write_bytes(bytes(4096) + archive.read_bytes()[4096:100_000])  # its head comes last
    again = opened(tmp_path)
    again.close()
    assert again.flags == (f"-XX:ArchiveClassesAtExit={part}",)
    assert not list(tmp_path.glob("*.jsa"))


def test_where_no_archive_can_be_written_it_is_not_tried_for_ever(tmp_path: Path) -> None:
    for _ in range(TRIES):
        assert part_of(tmp_path).suffix == ".part"
    assert opened(tmp_path) == NONE


def test_an_archive_that_was_cut_off_is_removed(tmp_path: Path, archive: Path) -> None:
    shutil.copy(archive, part_of(tmp_path))
    opened(tmp_path)
    (kept,) = tmp_path.glob("*.jsa")
    kept.chmod(0o644)
    kept.write_bytes(kept.read_bytes()[:-1])
    opened(tmp_path).close()
    assert not kept.exists()


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "HADOOP_CONF_DIR", "SPARK_HOME"])
def test_who_tunes_the_jvm_or_its_class_path_gets_no_archive(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "/somewhere")
    assert opened(tmp_path) == NONE
    assert not list(tmp_path.iterdir())


def test_a_cache_that_cannot_be_written_costs_the_archive_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert opened(tmp_path / "file") == NONE
    part_of(tmp_path)
    (lock,) = tmp_path.glob("*.lock")
    lock.write_text("something else")
    assert opened(tmp_path) == NONE


def test_the_zips_of_the_package_are_passed_over_and_those_of_an_installed_spark_are_not(tmp_path: Path) -> None:
    home = JARS.parent
    zips = [str(home / "python" / "lib" / "pyspark.zip"), str(home / "python" / "lib" / "py4j-1-src.zip")]
    assert without_zips(["", *zips, "/x"], str(home)) == ["", "/x", str(home.parent)]
    assert without_zips(["", "/x"], str(home)) == ["", "/x"]
    installed = [str(tmp_path / "python" / "lib" / "pyspark.zip")]
    assert without_zips(installed, str(tmp_path)) == installed
    assert without_zips(installed, None) == installed


def test_a_connect_server_has_no_context() -> None:
    with pytest.raises(UsageError):
        SparkTarget(remote="sc://127.0.0.1").context()


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_workers_take_compiled_files(spark: Any) -> None:
    def where(_: int) -> str:
        import pyspark

        return str(pyspark.__file__)

    assert spark.sparkContext.parallelize([1], 1).map(where).collect() == [str(JARS.parent / "__init__.py")]


_STARTED = """
import sys
from pathlib import Path
from pyspark import SparkContext
from klog.spark.running.session import SparkTarget, start_session
where = SparkTarget("local[1]", settings={"spark.task.maxFailures": "2"}, cache=Path(sys.argv[1]))
context = where.context()
assert where.context() is context
assert context.parallelize(range(3), 1).map(str).collect() == ["0", "1", "2"]
assert context.getConf().get("spark.task.maxFailures") == "2"
jvm = vars(SparkContext._gateway)["proc"]
maps = Path(f"/proc/{jvm.pid}/maps").read_text()
if "session" in sys.argv:
    assert start_session().sparkContext is context
    assert start_session().range(3).count() == 3
print(sum(line.endswith(".jsa") and sys.argv[1] in line for line in maps.splitlines()) > 0)
jvm.stdin.close()
assert jvm.wait() == 0
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long("two JVMs of its own, of which one writes an archive")
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at what the JVM has mapped")
def test_the_second_start_maps_what_the_first_has_written(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def started(*words: str) -> str:
        command = [sys.executable, "-c", _STARTED, str(tmp_path), *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert started() == "False"
    until(lambda: list(tmp_path.glob("*.part")), WRITTEN_S)
    assert started("session") == "True"
