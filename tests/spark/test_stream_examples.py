"""The examples of docs/streams.md: their programs, their data, and the output that the page shows."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klog.spark.running.target import SparkTarget
from klog.streams import job, running
from klog.streams.folder import StreamFolder
from klog.streams.program import Input
from tests.broker_fixture import ROOT
from tests.spark.conftest import Message, TopicOnBroker
from tests.spark.streamed import messages_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PAGE = (ROOT / "docs/streams.md").read_text()
BLOCK = re.compile(r'^```\w+ title="([\w.]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
FILES = dict(BLOCK.findall(PAGE))
COMMAND = re.compile(
    r"^\$ klog stream run (\w+\.py) (.*?[^\\])\n\$ klog tail ([\w-]+) .*?\n(.*?)^```", re.MULTILINE | re.DOTALL
)
RUNS = {program: (flags, target, output) for program, flags, target, output in COMMAND.findall(PAGE)}


def test_the_page_has_three_examples() -> None:
    assert set(RUNS) == {"views.py", "clicks.py", "orders.py"}
    compile(FILES["first.py"], "first.py", "exec")
    assert len([line for line in FILES["first.py"].splitlines() if line]) <= 10


@pytest.mark.parametrize("program", sorted(RUNS.keys() - {"views.py"}))  # which test_examples.py runs by the command
@pytest.mark.long("a document that is walked; test_streams.py has its queries")
def test_an_example_of_the_page(
    broker: Any, new_topic: Callable[..., TopicOnBroker], tmp_path: Path, program: str
) -> None:
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
    made = job.Job(
        broker.bootstrap,
        tuple(inputs),
        job.Program.of(path, None),
        job.sink_of(broker.bootstrap, f"topic:{target.name}", key),
        str(tmp_path / "checkpoint"),
        SparkTarget("local[2,4]"),
        "example",
        options={"startingOffsets": "earliest"},
        once=True,
    )
    running.run(StreamFolder(tmp_path, "example"), made.start, threading.Event())
    found = sorted((one.value or b"").decode() for one in messages_of(target))
    assert found == sorted(output.splitlines())
    assert {json.loads(one)[key[0]] for one in found} == {(one.key or b"").decode() for one in messages_of(target)}


def _message(line: str) -> Message:
    value = json.loads(line)
    if "key" in value:
        return Message(value["key"].encode(), value["value"].encode())
    return Message(None, line.encode())
