"""`klog produce --schema`: JSON encoded by the registry's schemas, and what does not fit, which harms nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from klog import Producer, Schemas
from klog.errors import InvalidRecord, UsageError
from tests.broker_fixture import RunningBroker
from tests.cli.example_lines import example
from tests.cli.runner import klog
from tests.tools.verbs import make_topic

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": ["null", "string"], "default": None}],
}
ORDER_V2 = {**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 0}]}


@pytest.fixture
def at(broker: RunningBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The flags that name the broker, which has the topic and its schema."""
    monkeypatch.chdir(tmp_path)
    make_topic(broker.bootstrap, topic)
    flags = ["-B", broker.bootstrap]
    assert register(f"{topic}-value", ORDER, flags) > 0
    return flags


def register(subject: str, schema: object, at: list[str]) -> int:
    ran = klog("schema", "register", subject, "-o", "json", *at, input=json.dumps(schema))
    assert ran.code == 0, ran.stderr
    return int(ran.rows[0]["id"])


def read(topic: str, at: list[str], *flags: str) -> list[Any]:
    ran = klog("tail", topic, "-o", "start", "-e", "--schema", *flags, *at)
    assert ran.code == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_lines_of_json_are_encoded_and_shown_again(topic: str, at: list[str], tmp_path: Path) -> None:
    (tmp_path / "values.jsonl").write_text('{"id": 1, "who": "ana"}\n{"id": 2}\n')
    ran = klog(*example("klog produce clicks values.jsonl --schema", clicks=topic), *at)
    assert ran.code == 0, ran.stderr
    ran = klog("produce", topic, "-K", ":", "-Z", "--schema", *at, input='k:{"id": 3}\ndead:\n')
    assert ran.code == 0, ran.stderr
    lines = read(topic, at, "--output", "jsonl")
    assert [one["value"] for one in lines] == [
        {"id": 1, "who": "ana"},
        {"id": 2, "who": None},
        {"id": 3, "who": None},
        None,
    ]
    assert [one["key"] for one in lines] == [None, None, "k", "dead"]


def test_a_line_that_does_not_fit_is_named_and_the_others_are_sent(topic: str, at: list[str]) -> None:
    lines = ['{"id": 1}', '{"id": "x"}', '{"id": 2, "whom": "ana"}', '{"id": 4}', ""]
    ran = klog("produce", topic, "--schema", *at, input="\n".join(lines))
    facts = ("2 messages failed", "line 2", "id:", "whole number", '"x"', "lines 2 to 3")
    assert ran.code == 1 and all(fact in ran.stderr for fact in facts), ran.stderr
    assert read(topic, at) == [{"id": 1, "who": None}, {"id": 4, "who": None}]


def test_what_tail_writes_keeps_the_schema_of_each_message(topic: str, at: list[str], broker: RunningBroker) -> None:
    old = register(f"{topic}-value", ORDER, at)
    assert klog("produce", topic, "--schema", *at, input='{"id": 1}').code == 0
    new = register(f"{topic}-value", ORDER_V2, at)
    assert klog("produce", topic, "--schema", *at, input='{"id": 2, "n": 5}').code == 0
    copy = f"{topic}-copy"
    make_topic(broker.bootstrap, copy)
    source = klog("tail", topic, "-o", "start", "-e", "--schema", "--output", "jsonl", *at).stdout
    assert klog("produce", copy, "-i", "jsonl", "--schema", *at, input=source).code == 1, (
        "no subject of the copy's name"
    )
    register(f"{copy}-value", ORDER_V2, at)
    assert klog("produce", copy, "-i", "jsonl", "--schema", *at, input=source).code == 0
    assert [one["value_schema_id"] for one in read(copy, at, "--output", "jsonl")] == [old, new]
    # By a schema that is named, all are of that one; read as a schema that is named, all have its fields.
    assert klog("produce", copy, "-i", "jsonl", "--schema", str(new), *at, input=source).code == 0
    assert [one["value_schema_id"] for one in read(copy, at, "--output", "jsonl")][2:] == [new, new]
    ran = klog("tail", topic, "-o", "start", "-e", "--schema", f"{topic}-value", *at)
    assert [json.loads(one)["n"] for one in ran.stdout.splitlines()] == [0, 5]
    plain = klog("tail", topic, "-o", "start", "-e", "--output", "jsonl", *at).stdout
    ran = klog("produce", copy, "-i", "jsonl", "--schema", *at, input=plain)
    assert ran.code == 1 and "value_encoding" in ran.stderr


def test_a_schema_that_is_not_there_is_said_before_anything_is_sent(topic: str, at: list[str]) -> None:
    for which in ("999999", "ordres"):
        ran = klog("produce", topic, "--schema", which, "-o", "json", *at, input='{"id": 1}')
        assert ran.code == 1 and which in ran.error["message"], ran.stderr
    assert read(topic, at) == []


def test_a_group_s_next_messages_are_decoded(topic: str, at: list[str]) -> None:
    assert klog("produce", topic, "--schema", *at, input='{"id": 1}').code == 0
    assert klog("produce", topic, *at, input="plain").code == 0
    ran = klog("tail", topic, "-o", "start", "-c", "1", "-G", f"g-{topic}", *at)
    assert ran.code == 0, ran.stderr
    assert klog("group", "rewind", f"g-{topic}", "--to", "start", "-y", *at).code == 0
    ran = klog("group", "peek", f"g-{topic}", "-n", "2", "--schema", "-o", "json", *at)
    assert [one["value"] for one in ran.rows] == ['{"id": 1, "who": null}', "plain"]
    assert f"{topic}-0" in ran.stderr and "framing" in ran.stderr


def test_programs_have_the_same(topic: str, at: list[str], broker: RunningBroker) -> None:
    with (
        Schemas(bootstrap_servers=broker.bootstrap) as schemas,
        Producer(bootstrap_servers=broker.bootstrap) as producer,
    ):
        value = schemas.encode({"id": 1, "who": "ana"}, f"{topic}-value")
        assert schemas.encode({"id": 1, "who": "ana"}, int.from_bytes(value[1:5], "big")) == value
        producer.send(topic, value)
        assert schemas.decode(value) == {"id": 1, "who": "ana"} and schemas.decode(None) is None
        with pytest.raises(UsageError, match="id: expected a whole number"):
            schemas.encode({"id": "x"}, f"{topic}-value")
        with pytest.raises(InvalidRecord, match="framing"):
            schemas.decode(b"plain")
    assert read(topic, at) == [{"id": 1, "who": "ana"}]
