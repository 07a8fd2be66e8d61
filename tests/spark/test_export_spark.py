"""`klog export run` with real Spark: exact and incremental. `test_pipeline_kills.py` kills it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from klog.errors import OffsetOutOfRange
from klog.spark.export import run_export
from tests.broker_fixture import ROOT
from tests.spark.conftest import Message, NewTopic, exported_offsets, exported_rows, make_messages
from tests.spark.exporting import states, when

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_runs_add_up_and_any_reader_is_right(spark: Any, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(2)
    root = tmp_path / "root"
    messages = [Message(b"k", b"v", (("h", b"1"),), 1), Message(None, None)]
    first = topic.produce(make_messages(500), 0, codec="zstd", batch=50) + topic.produce(messages, 1)
    rows = run_export(topic.bootstrap, [topic.name], str(root))
    assert sum(row.messages or 0 for row in rows) == 502
    second = topic.produce(make_messages(10), 0)
    run_export(topic.bootstrap, [topic.name], str(root))
    assert sorted(exported_offsets(root)) == sorted(first + second)
    frame = spark.read.parquet(str(root / "data"))
    assert frame.columns[-1] == "batch"
    assert [tuple(row) for row in frame.groupBy("batch").count().orderBy("batch").collect()] == [(0, 502), (1, 10)]
    (old,) = frame.where("partition = 1 AND key IS NOT NULL").collect()
    assert (bytes(old.value), old.timestamp.timestamp(), old.headers[0].key) == (b"v", 0.001, "h")
    assert set(states(root, topic)) == {"ok"}
    names = {path.name.split("-")[0].split("=")[0] for path in root.rglob("*") if "_klog" not in path.parts}
    names = {name for name in names if not name.isdigit()}
    assert names == {"data", "batch", "batches", "part", "_staging", "_klog", "_manifest.json"}


def test_a_run_with_nothing_new_does_not_even_import_spark(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    code = f"""
import sys
from klog.spark.export import run_export
assert run_export({topic.bootstrap!r}, [{topic.name!r}], {str(tmp_path / "root")!r}) == []
print([name for name in ("pyspark", "py4j", "pyarrow", "numpy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"


def test_what_a_task_says_is_the_error(spark: Any, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    produced = topic.produce(make_messages(30), batch=5)
    lose = when("staged", lambda: topic.delete_before(produced[20]))
    with pytest.raises(OffsetOutOfRange):
        run_export(topic.bootstrap, [topic.name], str(tmp_path), on_step=lose)
    assert exported_rows(tmp_path) == []
    assert list((tmp_path / "_staging").iterdir()) == []


def test_without_java_the_error_says_what_to_install(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    topic.produce(make_messages(1))
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in ("bash", "env", "dirname", "ps", "readlink", "uname"):
        if found := shutil.which(name):
            (binaries / name).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(binaries)}
    words = ["-B", topic.bootstrap, "export", "run", topic.name, "--to", str(tmp_path / "r")]
    command = [sys.executable, "-m", "klog", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False, text=True)
    assert done.returncode == 1
    assert "Spark" in done.stderr
    assert "openjdk" in done.stderr
    assert not (tmp_path / "r").exists(), "a next run is free to choose another format"
