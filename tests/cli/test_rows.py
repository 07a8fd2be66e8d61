"""What the best tools of this kind can do (`rows.txt`), each by a command that is run here or in the tests named."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

from klog.cli.root import walk
from klog.names import TopicPartition
from tests.admin.group_registry import commit, registry_of
from tests.broker_fixture import RunningBroker
from tests.cli.runner import events_are_told, klog
from tests.rows import each
from tests.tools.verbs import make_topic, send
from tests.until import until

COMMANDS = {" ".join(words): command for words, command in walk()}
ROOT = Path(__file__).resolve().parent.parent.parent
LINES = [
    line for line in (Path(__file__).parent / "rows.txt").read_text().splitlines() if line and not line.startswith("#")
]
KEYS = dict(line.split(" = ") for line in LINES if re.match(r"[RT]\d+ = ", line))
"""What a row, or a thing, is; in the words of the file."""
ROWS = [line.split(" | ") for line in LINES if line.partition(" = ")[0] not in KEYS]
RUN = [row[1:] for row in ROWS if not row[2].startswith("tests/")]
TESTED = [row[1:] for row in ROWS if row[2].startswith("tests/")]


def test_each_of_28_rows_and_20_things_is_shown() -> None:
    assert list(KEYS) == [*(f"R{number}" for number in range(1, 29)), *(f"T{number}" for number in range(1, 21))]
    shown = {key for row in ROWS for key in row[0].split()}
    assert shown == {*KEYS, "+"}


@pytest.fixture(scope="module")
def names(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the placeholders stand for."""
    topic = "rows"
    make_topic(broker.bootstrap, topic, 1)
    send(broker.bootstrap, topic, b"".join(b"%d\n" % number for number in range(10)))
    with registry_of(broker.zookeeper) as session:
        for group in ("rows-group", "rows-group-old"):
            commit(session, group, {TopicPartition(topic, 0): 0})
    plan = tmp_path_factory.mktemp("rows") / "plan.json"
    partition = {"topic": topic, "partition": 0, "replicas": [broker.broker_id]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    until(lambda: events_are_told("-B", broker.bootstrap), "the topic of events")
    (segment,) = broker.folder.rglob(f"{topic}-0/*.log")
    return {"topic": topic, "group": "rows-group", "plan": str(plan), "segment": str(segment)}


@each(("what", "line", "code"), RUN, ids=[row[0] for row in RUN], tests=4)
def test_a_row(names: dict[str, str], broker: RunningBroker, home: Path, what: str, line: str, code: str) -> None:
    words = shlex.split(line.format(**names))
    command = next(found for size in (2, 1) if (found := COMMANDS.get(" ".join(words[:size]))) is not None)
    at = ["-B", broker.bootstrap] if command.traits.connects else []
    ran = klog(*words, *at, input="key:value\n")
    assert ran.code == int(code), (what, ran)


@each(("what", "named"), TESTED, ids=[row[0] for row in TESTED])
def test_a_row_of_other_tests(what: str, named: str) -> None:
    file, _, name = named.partition("::")
    functions = [node for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)]
    assert name in {one.name for one in functions}, what
