"""Where one machine ends: exports on the wheel's own cluster of two workers, and through its Connect server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from klog.ops.export.verify import verify
from tests.broker_fixture import ROOT
from tests.spark.conftest import TopicOnBroker, exported_rows, make_messages
from tests.spark.killed_export import JVM_QUICK_START
from tests.spark.standalone_cluster import QUICK, Standalone, connect_server, standalone

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

NewTopic = Callable[..., TopicOnBroker]
PARTITIONS = 8

SPECULATION = [
    "spark.speculation=true",
    "spark.speculation.interval=50ms",
    "spark.speculation.multiplier=1.01",
    "spark.speculation.quantile=0.1",
    "spark.speculation.minTaskRuntime=10ms",
]
"""So eager that tasks run twice without being slow."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


def export(topic: TopicOnBroker, root: Path, *options: str) -> subprocess.Popen[str]:
    """``klog export run``, started."""
    command = [sys.executable, "-m", "klog", "-B", topic.bootstrap, "-o", "json", "export", "run", topic.name]
    return subprocess.Popen(
        [*command, "--to", str(root), *options],
        cwd=ROOT,
        env=os.environ | {"JAVA_TOOL_OPTIONS": JVM_QUICK_START},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    return out


def conf(*settings: str) -> list[str]:
    return [word for one in (*QUICK, *settings) for word in ("--conf", one)]


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
    return {row.state for row in verify(topic.bootstrap, str(root))} == {"ok"}


def test_an_executor_is_killed_while_it_writes_and_tasks_run_twice(
    cluster: Standalone, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, root = new_topic(PARTITIONS), tmp_path / "root"
    produced = fill(topic)
    options = [*conf(*SPECULATION, "spark.task.maxFailures=8"), "--master", cluster.master]
    process = export(topic, root, *options)
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
    process = subprocess.run(
        [*command, "--master", "local[2,4]", *options, "--run"],
        cwd=ROOT,
        env=os.environ | {"JAVA_TOOL_OPTIONS": JVM_QUICK_START, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    rows = json.loads(process.stdout)["rows"]
    assert sum(row["messages"] for row in rows) == len(produced)
    assert list(root.glob("data/batch=0000000000/dt=*/part-*.avro"))
    assert {row.state for row in verify(topic.bootstrap, str(root))} == {"ok"}


def test_an_export_through_connect(new_topic: NewTopic, tmp_path: Path) -> None:
    topic, root = new_topic(PARTITIONS), tmp_path / "root"
    produced = fill(topic)
    with connect_server(tmp_path) as remote:
        rows = json.loads(ended(export(topic, root, "--remote", remote)))["rows"]
    assert sum(row["messages"] for row in rows) == len(produced)
    assert is_exact(topic, root, produced)


def test_a_worker_without_klogs_python_is_found_out_before_anything_is_written(
    cluster: Standalone, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, root = new_topic(1), tmp_path / "root"
    topic.produce(make_messages(10))
    process = export(
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
