"""What the best tools of this kind can do (`rows.txt`), each by a command that is run here."""

from __future__ import annotations

import json
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
LINES = Path(__file__).with_name("rows.txt").read_text().splitlines()
ROWS = [line.split(" | ") for line in LINES if line and not line.startswith("#")]


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


@each(("what", "line", "code"), ROWS, ids=[row[0] for row in ROWS], tests=4)
def test_a_row(names: dict[str, str], broker: RunningBroker, home: Path, what: str, line: str, code: str) -> None:
    words = shlex.split(line.format(**names))
    command = next(found for size in (2, 1) if (found := COMMANDS.get(" ".join(words[:size]))) is not None)
    at = ["-B", broker.bootstrap] if command.traits.connects else []
    ran = klog(*words, *at, input="key:value\n")
    assert ran.code == int(code), (what, ran)
