"""The examples of exports, streams and SQL, run as they stand; folders become those of the test."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.example_lines import example
from tests.cli.runner import klog
from tests.spark.conftest import Message, TopicOnBroker, make_messages
from tests.spark.quick_java import spark_environment
from tests.spark.test_stream_examples import FILES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NewTopic = Callable[..., TopicOnBroker]
ENDED_WITHIN_S = 60


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """``klog WORDS`` with Spark of its own."""
    environment = os.environ | spark_environment()
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "klog", *words]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_exports(spark: Any, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    topic.produce(make_messages(10))
    root, at = tmp_path / "root", ("-B", topic.bootstrap)
    to = {"clicks": topic.name, "/data/clicks": root}
    assert klog(*example("klog export run clicks --to /data/clicks", **to), *at).code == 0
    assert klog(*example("klog export status root", root=root), *at).code == 0
    assert klog(*example("klog export verify root", root=root), *at).code == 0
    assert len(klog(*example("klog export list root", root=root), "-o", "json").rows) == 1
    assert klog(*example("klog export compact root --dry-run", root=root)).code == 0
    assert klog(*example("klog export gc root --dry-run", root=root)).code == 0


@pytest.mark.long("an example with a JVM of its own; test_export_follow.py has one")
def test_an_export_that_goes_on(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    topic.produce(make_messages(10))
    root, at = tmp_path / "root", ("-B", topic.bootstrap)
    to = {"clicks": topic.name, "/data/clicks": root}
    going_on = example("klog export run clicks --to /data/clicks --follow --every 1h", **to)
    with started(*going_on, *at, "-o", "jsonl") as process:
        assert process.stdout is not None and json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(ENDED_WITHIN_S) in (0, 130)
    assert len(klog("export", "list", root, "-o", "json").rows) == 1


@pytest.mark.long("a document that is walked; test_queries.py has a stream")
def test_a_stream(new_topic: NewTopic, tmp_path: Path) -> None:
    source, target = new_topic(), new_topic()
    source.produce([Message(None, json.dumps({"country": "is"}).encode())])
    program = re.sub(r"\bviews\b(?=[,)]|\.window)", source.name.replace("-", "_"), FILES["views.py"])
    program = program.replace('on="at"', 'on="timestamp"')  # the example's messages have no other time
    (tmp_path / "views.py").write_text(program)
    line = "klog stream run views.py --from 'views:json=country string' --to topic:totals"
    own = {"views.py": tmp_path / "views.py", "views": source.name, "totals": target.name}
    words = example(line, **own)
    at, state = ("-B", source.bootstrap), ("--state", str(tmp_path / "state"))
    with started(*words, *at, *state, "-o", "jsonl") as process:
        assert process.stdout is not None and json.loads(process.stdout.readline())
        (row,) = klog(*example("klog stream status totals", totals=target.name), *at, *state, "-o", "json").rows
        assert row["lag"] == 0
        (row,) = klog(*example("klog stream list"), *state, "-o", "json").rows
        assert row["state"] == "running"
        assert klog(*example("klog stream stop totals", totals=target.name), *state).code == 0
        assert process.wait(ENDED_WITHIN_S) == 0
    assert klog(*example("klog stream stop --remove totals", totals=target.name), *state, "-y").code == 0


@pytest.mark.long("a document that is walked")
def test_queries(spark: Any, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.produce(make_messages(3))
    view, at = topic.name.replace("-", "_"), ("-B", topic.bootstrap, "-o", "json")
    counted = klog(*example("klog sql 'select partition, count(*) from clicks group by partition'", clicks=view), *at)
    assert counted.code == 0 and counted.rows == [{"partition": 0, "count(1)": 3}]
    line = "klog sql 'select * from clicks where offset >= 4711' -c 10 -o json"
    rows = klog(*example(line, clicks=view, **{"4711": 1}), "-B", topic.bootstrap).rows
    assert [row["offset"] for row in rows] == [1, 2]
