"""Where one machine ends: exports on the wheel's own cluster of two workers, and through its Connect server."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.broker_fixture import ROOT
from tests.spark.conftest import Message, NewTopic, TopicOnBroker, exported_rows, make_messages, start_export
from tests.spark.exporting import states
from tests.spark.quick_java import spark_environment
from tests.spark.standalone_cluster import Standalone, connect_server, quick_settings, standalone
from tests.spark.stopped_task import open_below, stop_while_writing

pytestmark = [
    pytest.mark.long("servers of Spark's own; exports on one session are in test_export_spark.py"),
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("standalone"),  # its tests share servers that take long to start
]

PARTITIONS = 8

SPECULATION = [
    "spark.speculation=true",
    "spark.speculation.interval=50ms",
    "spark.speculation.multiplier=1.01",
    "spark.speculation.quantile=0.1",
    "spark.speculation.minTaskRuntime=10ms",
    "spark.speculation.task.duration.threshold=100ms",
]
"""So eager that tasks run twice without being slow; the last is for a stage of one task."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


def ended(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    return out


def conf(*settings: str) -> list[str]:
    return [word for one in (*quick_settings(), *settings) for word in ("--conf", one)]


def fill(topic: TopicOnBroker) -> list[tuple[int, int]]:
    """Messages in every partition; their (partition, offset), as exported."""
    return sorted(
        (partition, offset)
        for partition in range(PARTITIONS)
        for offset in topic.produce(make_messages(2_000, partition * 2_000), partition, batch=500)
    )


def is_exact(topic: TopicOnBroker, root: Path, produced: list[tuple[int, int]]) -> bool:
    """Every message once, and counts and checksums as the brokers have them."""
    assert [(row["partition"], row["offset"]) for row in exported_rows(root)] == produced
    return set(states(root, topic)) == {"ok"}


def test_an_executor_is_killed_while_it_writes_and_tasks_run_twice(
    cluster: Standalone, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, root = new_topic(PARTITIONS), tmp_path / "root"
    produced = fill(topic)
    options = [*conf(*SPECULATION, "spark.task.maxFailures=8"), "--master", cluster.master]
    process = start_export(topic, root, *options)
    killed: list[psutil.Process] = []
    pause = threading.Event()
    while process.poll() is None and not killed:
        if any(path.stat().st_size for path in root.glob("_staging/**/part-*")):
            killed = cluster.workers[0].executors()[:1]
            for one in killed:
                one.send_signal(signal.SIGKILL)
        pause.wait(0.002)
    ended(process)
    assert killed
    assert is_exact(topic, root, produced)


def test_an_attempt_that_another_was_quicker_than_leaves_nothing(
    cluster: Standalone, new_topic: NewTopic, tmp_path: Path
) -> None:
    """One task stands still as it writes, until what another attempt of it wrote is committed; then it goes on."""
    topic, root = new_topic(PARTITIONS), tmp_path / "root"
    values = random.Random(PARTITIONS)
    produced = sorted(
        (partition, offset)
        for partition in range(PARTITIONS)
        for offset in topic.produce([Message(None, values.randbytes(500)) for _ in range(4_000)], partition, batch=500)
    )
    options = [*conf(*SPECULATION, "spark.python.task.killTimeout=300s"), "--master", cluster.master]
    # Small files: there are many moments to stop a task at, and files still to be made when it goes on.
    options += ["--follow", "--every", "1s", "--max-file-bytes", "100kb"]
    process = start_export(topic, root, *options, output="jsonl")
    loser = None
    try:
        loser, attempt = stop_while_writing(
            process, root, lambda: [task for one in cluster.workers for task in one.tasks()]
        )
        log = Path(loser.cwd(), "stderr")  # its executor's
        assert process.stdout is not None
        committed = json.loads(process.stdout.readline())
        assert committed["messages"] == len(produced)
        assert open_below(loser, tmp_path)  # it stands where it stood
        pause, deadline = threading.Event(), time.monotonic() + 60
        while "trying to kill task" not in log.read_text() and time.monotonic() < deadline:
            pause.wait(0.01)
        loser.resume()
        psutil.wait_procs([loser], 60)
        assert not loser.is_running()
        process.send_signal(signal.SIGTERM)
        ended(process)
    finally:
        for one in filter(None, (loser, process)):
            with suppress(psutil.NoSuchProcess):
                one.kill()
    assert list(root.glob(f"_staging/*-attempts/{attempt}-*"))  # it did go on
    assert not list(root.glob(f"data/**/{attempt}-*"))
    assert is_exact(topic, root, produced)


def submitted(command: list[str]) -> str:
    """What the line of a submission prints when it is run on this machine's cores."""
    return ran([*command, "--master", "local[2,4]", "--run"])


def ran(command: list[str]) -> str:
    """What a command prints, with spark-submit on its path."""
    bin_first = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | spark_environment() | {"SPARK_LOCAL_IP": "127.0.0.1", "PATH": bin_first},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


def test_a_submitted_line_exports(new_topic: NewTopic, tmp_path: Path) -> None:
    topic, root = new_topic(PARTITIONS), tmp_path / "root"
    produced = fill(topic)
    command = [sys.executable, "-m", "klog", "-B", topic.bootstrap, "export", "submit", topic.name, "--to", str(root)]
    options = [
        "--folder",
        str(tmp_path / "shipped"),
        "--arguments",
        "--format avro --partition-by day -o json",
        *conf(),
    ]
    rows = json.loads(submitted([*command, *options]))["rows"]
    assert sum(row["messages"] for row in rows) == len(produced)
    assert list(root.glob("data/batch=0000000000/dt=*/part-*.avro"))
    assert set(states(root, topic)) == {"ok"}


def test_a_submitted_stream_computes(new_topic: NewTopic, tmp_path: Path) -> None:
    topic, target = new_topic(PARTITIONS), new_topic()
    produced = fill(topic)
    program = tmp_path / "count.sql"
    program.write_text(f"SELECT CAST(count(*) AS STRING) AS value FROM {topic.name.replace('-', '_')} GROUP BY topic")
    command = [sys.executable, "-m", "klog", "-B", topic.bootstrap, "stream", "run", str(program)]
    options = ["--from", topic.name, "--to", f"topic:{target.name}", "--state", str(tmp_path / "state")]
    options += ["--folder", str(tmp_path / "shipped"), "--update", "--once", "--submit", *conf()]
    line = ran([*command, *options, "--master", "local[2,4]"])
    ran(["sh", "-c", line])
    tail = [sys.executable, "-m", "klog", "-B", topic.bootstrap, "tail", target.name, "-o", "start", "-e", "-f", "%s\n"]
    shown = subprocess.run(tail, cwd=ROOT, capture_output=True, text=True, check=True)
    assert str(len(produced)) in shown.stdout


def test_an_export_through_connect(new_topic: NewTopic, tmp_path: Path) -> None:
    topic, root = new_topic(PARTITIONS), tmp_path / "root"
    produced = fill(topic)
    with connect_server(tmp_path) as remote:
        rows = json.loads(ended(start_export(topic, root, "--remote", remote)))["rows"]
    assert sum(row["messages"] for row in rows) == len(produced)
    assert is_exact(topic, root, produced)


def test_a_worker_without_klogs_python_is_found_out_before_anything_is_written(
    cluster: Standalone, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, root = new_topic(1), tmp_path / "root"
    topic.produce(make_messages(10))
    process = start_export(
        topic,
        root,
        *conf("spark.pyspark.python=/nowhere/python3", "spark.task.maxFailures=1"),
        "--master",
        cluster.master,
    )
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "/nowhere/python3" in errors
    assert "PYSPARK_PYTHON" in errors
    assert not [path for path in root.rglob("*") if path.is_file() and path.name != "export.json"]
