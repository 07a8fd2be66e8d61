"""The examples of exports, streams and SQL, run as they stand, in folders of the test. Those of docs/streams.md: their
programs, their data, and the output that the page shows."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from klog.spark.running.session import SparkTarget
from klog.streams import running
from klog.streams.folder import StreamFolder
from klog.streams.program import Input, Program, open_inputs, sink_of
from klog.streams.streams import Streams, with_few_partitions
from tests.broker_fixture import ROOT
from tests.cli.example_lines import example
from tests.cli.runner import klog
from tests.spark.conftest import Message, NewTopic, make_messages, start_klog

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ENDED_WITHIN_S = 60

PAGE = (ROOT / "docs/streams.md").read_text()
BLOCK = re.compile(r'^```\w+ title="([\w.]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
FILES = dict(BLOCK.findall(PAGE))
COMMAND = re.compile(
    r"^\$ klog stream run (\w+\.py) (.*?[^\\])\n\$ klog tail ([\w-]+) .*?\n(.*?)^```", re.MULTILINE | re.DOTALL
)
RUNS = {program: (flags, target, output) for program, flags, target, output in COMMAND.findall(PAGE)}


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """``klog WORDS``, ended with the test."""
    with start_klog(*words, stderr=None) as process:
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


@pytest.mark.long("a document that is walked; test_source.py has a stream")
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


# --- docs/streams.md ---


def test_the_page_has_three_examples() -> None:
    assert set(RUNS) == {"views.py", "clicks.py", "orders.py"}
    compile(FILES["first.py"], "first.py", "exec")
    assert len([line for line in FILES["first.py"].splitlines() if line]) <= 10


@pytest.mark.parametrize("program", sorted(RUNS.keys() - {"views.py"}))  # which test_a_stream runs by the command
@pytest.mark.long("a document that is walked; test_streams.py has its queries")
def test_an_example_of_the_page(broker: Any, new_topic: NewTopic, tmp_path: Path, program: str) -> None:
    flags, _, output = RUNS[program]
    target = new_topic()
    path = tmp_path / program
    text = FILES[program]
    inputs = []
    for asked in [*re.findall(r"--from '([^']+)'", flags), *(["customers"] if "customers" in text else [])]:
        one = Input.parse(asked)
        topic = new_topic(2)
        topic.produce([_message(line) for line in FILES[f"{one.topic}.jsonl"].splitlines()])
        name = topic.name
        # The tests' topics have other names, and so have the parameters of the program.
        if asked == "customers":
            text = text.replace('latest("customers"', f'latest("{name}"')
        else:
            text = re.sub(rf"\b{one.topic}\b(?=[,)]|\.window|\.join|\.enrich)", name.replace("-", "_"), text)
            inputs.append(Input(name, one.form))
    path.write_text(text)
    key = tuple(re.findall(r"--key (\w+)", flags))
    sink = sink_of(broker.bootstrap, f"topic:{target.name}", key)

    def start() -> Any:
        streams = Streams(broker.bootstrap, with_few_partitions(SparkTarget("local[2,4]")).session())
        computed = Program.of(path, None).stream(streams, open_inputs(streams, tuple(inputs), {}))
        return computed.start(sink, str(tmp_path / "checkpoint"), available_now=True)

    running.run(StreamFolder(tmp_path, "example"), start, threading.Event())
    found = sorted((one.value or b"").decode() for one in target.messages())
    assert found == sorted(output.splitlines())
    assert {json.loads(one)[key[0]] for one in found} == {(one.key or b"").decode() for one in target.messages()}


def _message(line: str) -> Message:
    value = json.loads(line)
    if "key" in value:
        return Message(value["key"].encode(), value["value"].encode())
    return Message(None, line.encode())
