"""`klog export run --engine local`: the same files, manifest and verify, by processes of this machine."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from klog.errors import HostError, OffsetOutOfRange, UsageError
from klog.export.batch_writer import BatchWriter, WriteJob
from klog.export.root import ExportRoot
from klog.export.run import how_far
from klog.spark import options
from klog.spark.export import _by_processes, run_export
from klog.spark.running.session import SparkTarget
from tests.chance import noise
from tests.cli.runner import klog
from tests.spark.conftest import Message, NewTopic, exported_offsets, exported_rows, make_messages, start_export
from tests.spark.exporting import export, states, when
from tests.until import until


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process for each core has several."""
    monkeypatch.setattr(options, "SPLIT_BYTES", 2000)


def test_the_command_needs_no_java(new_topic: NewTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(2)
    produced = topic.produce(make_messages(100), 0), topic.produce(make_messages(40), 1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    with start_export(topic, tmp_path / "root", "--engine", "local", "--checksum") as process:
        out, errors = process.communicate()
    assert process.returncode == 0, errors
    assert [row["messages"] for row in json.loads(out)["rows"]] == [100, 40]
    assert [(row["partition"], row["offset"]) for row in exported_rows(tmp_path / "root")] == [
        (partition, offset) for partition, offsets in enumerate(produced) for offset in offsets
    ]
    assert states(tmp_path / "root", topic) == ["ok", "ok"]
    assert ExportRoot(str(tmp_path / "root")).manifest(0)[0].engine.startswith("local")
    where = ["where", topic.name, str(produced[1][5]), "-p", "1", "--export", str(tmp_path / "root"), "-o", "json"]
    (place,) = klog("-B", topic.bootstrap, *where).rows
    assert place["batch"] == 0 and place["batch_offset"] <= produced[1][5]


@pytest.mark.usefixtures("small_tasks")
def test_many_tasks_run_in_processes(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    produced = topic.produce(make_messages(400), batch=20)
    seen: list[tuple[float | None, int]] = []

    @contextmanager
    def watch(writer: BatchWriter, job: WriteJob) -> Iterator[None]:
        yield
        seen.append(how_far(writer, job))

    rows = run_export(topic.bootstrap, [topic.name], str(tmp_path), writer="local", checksum=True, watching=watch)
    assert [(row.messages, (row.files or 0) > 3) for row in rows] == [(400, True)]
    assert exported_offsets(tmp_path) == produced
    assert states(tmp_path, topic) == ["ok"]
    assert multiprocessing.active_children() == []
    assert seen == [(400, 400)]


@pytest.mark.usefixtures("small_tasks")
def test_what_a_process_raises_is_the_error(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    produced = topic.produce(make_messages(300), batch=10)
    lose = when("staged", lambda: topic.delete_before(produced[200]))
    with pytest.raises(OffsetOutOfRange):
        export(topic, tmp_path, on_step=lose)
    assert exported_rows(tmp_path) == [] and list((tmp_path / "_staging").iterdir()) == []


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    return [one for one in process.children() if "spawn_main" in " ".join(one.cmdline())]


class Deadly:
    """Tasks of which one ends its process, and the others would never be done."""

    def write(self, partition: int) -> str:
        if partition:
            threading.Event().wait()
        os.kill(os.getpid(), signal.SIGKILL)
        return ""


def test_a_killed_process_ends_the_others_and_is_said() -> None:
    with pytest.raises(HostError, match="killed"):
        list(_by_processes(Deadly(), [0, 1, 2], 2))
    assert multiprocessing.active_children() == []


def test_processes_end_with_a_command_that_is_killed(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    topic.produce([Message(b"k", noise(500, number)) for number in range(500)], batch=3)
    code = f"""
from klog.spark import options
from klog.spark.export import _by_processes, run_export
options.SPLIT_BYTES = 2000
if __name__ == "__main__":
    run_export({topic.bootstrap!r}, [{topic.name!r}], {str(tmp_path / "root")!r}, writer="local")
"""
    (tmp_path / "program.py").write_text(code)
    with subprocess.Popen([sys.executable, tmp_path / "program.py"]) as process:
        workers = until(lambda: workers_of(psutil.Process(process.pid)))
        process.kill()
    psutil.wait_procs(workers, timeout=60)
    assert not any(one.is_running() for one in workers)
    assert exported_rows(tmp_path / "root") == []


def test_what_is_for_spark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="local"):
        run_export("h:1", ["t"], str(tmp_path), writer="local", where=SparkTarget("yarn"))
