"""Lines of JSON for `klog produce -i jsonl` that no `klog tail` has written, and exact copies by those that it has."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from klog.errors import UsageError
from klog.render.jsonl import from_line
from tests.broker_fixture import RunningBroker
from tests.chance import seed_of
from tests.cli.runner import klog
from tests.rows import each

HOSTILE: list[dict[str, Any]] = [
    {"headers": [{"key": "a", "value": "\ud800"}]},
    {"timestamp": "9" * 19},
    {"timestamp": "9" * 30},
    {"timestamp": "9" * 5000},
    {"timestamp": 2**63},
    {"timestamp": True},
    {"timestamp": 1e300},
    {"value": "\ud800"},
    {"value": {}},
    {"value_encoding": []},
    {"value_encoding": "base64"},
]


@each("row", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_lines(row: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        from_line(json.dumps({"value": "\u00e9", **row}).encode())
    assert len(caught.value.message) < 150


def test_the_largest_time() -> None:
    for number in (2**63 - 1, 10**15):
        assert from_line(json.dumps({"value": "", "timestamp": str(number)}).encode()).timestamp_ms == number


def test_names_of_headers_that_cannot_be_sent(broker: RunningBroker, topic: str) -> None:
    at = ["-B", broker.bootstrap]
    assert klog("produce", topic, "-H", "\udcff=1", *at, input="").code == 2
    names = ('{"a\\u0000b": "x"}', '{"a\\udfff": "x"}', '[{"key": "\\ud800", "value": "x"}]', '{"h": "x"}')
    lines = "\n".join(f'{{"value": "b", "headers": {one}}}' for one in names)
    ran = klog("produce", topic, "--create", "-i", "jsonl", *at, input=lines)
    assert ran.code == 1 and "line 1" in ran.stderr and "NUL" in ran.stderr and "3 messages failed" in ran.stderr
    assert klog("tail", topic, "-o", "start", "-e", *at).stdout == "b\n"


NOISE = b"\x00\xff\xfe\r\n\x1b[2J\xc3("


def random_bytes(chance: random.Random) -> bytes | None:
    whole = (None, b"", NOISE, '"\\\u2028\U0001f600'.encode(), chance.randbytes(chance.randrange(300)))
    return chance.choice(whole)


def test_a_copy_by_lines_is_exact(broker: RunningBroker, topic: str) -> None:
    """Also where several times lie before others, in partitions that no key would choose."""
    at, copy, chance = ["-B", broker.bootstrap], f"{topic}-copy", random.Random(seed_of("copy by lines"))
    for name in (topic, copy):
        assert klog("topic", "create", name, "-p", "3", "-X", "retention.ms=-1", *at).code == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(300):
        headers = [(name, random_bytes(chance)) for name in chance.choices(["h", "", "\u00f6", "\x1b"], k=number % 4)]
        time_ms = chance.choice([1, 1_700_000_000_000 + number, 1_700_000_000_000 - number])
        key, value = random_bytes(chance), random_bytes(chance)
        producer.produce(topic, value, key, number % 3, headers=headers or None, timestamp=time_ms)
    assert producer.flush(30) == 0

    def lines(name: str, partition: int) -> str:
        shown = klog("tail", name, "-p", partition, "-o", "start", "-e", "--output", "jsonl", *at)
        assert shown.code == 0
        rows = [json.loads(line) for line in shown.stdout.split("\n")[:-1]]
        return "\n".join(json.dumps({**row, "topic": "", "offset": 0}) for row in rows)

    everything = klog("tail", topic, "-o", "start", "-e", "--output", "jsonl", *at).stdout
    assert everything.count("\n") == 300
    ran = klog("produce", copy, "-i", "jsonl", "--keep-partitions", *at, input=everything)
    assert ran.code == 0, ran.stderr
    for partition in range(3):
        assert lines(copy, partition) == lines(topic, partition)


def test_partitions_that_cannot_be_kept(broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    at, rejects = ["-B", broker.bootstrap], tmp_path / "rejects"
    assert klog("topic", "create", topic, "-p", "2", *at).code == 0
    partitions = ["1", "2", "null", "-1", "true", "1.0", '"1"', str(2**31), "9" * 400, "0"]
    lines = "\n".join(f'{{"value": "v{number}", "partition": {one}}}' for number, one in enumerate(partitions))
    ran = klog("produce", topic, "-i", "jsonl", "--keep-partitions", "--rejects", rejects, *at, input=lines)
    assert ran.code == 1 and "8 messages failed" in ran.stderr and "lines 3 to 9" in ran.stderr
    assert [json.loads(line)["partition"] for line in rejects.read_text().splitlines()] == [2]
    form = ["-f", "%p %s", "--keep-partitions", *at]
    assert klog("produce", topic, *form, input="0 a\n1 b\n").code == 0
    assert klog("produce", topic, *form, input="2147483648 a\n-1 b\n").code == 1
    assert klog("tail", topic, "-p", "0", "-o", "start", "-e", *at).stdout == "v9\na\n"
    assert klog("tail", topic, "-p", "1", "-o", "start", "-e", *at).stdout == "v0\nb\n"
    assert klog("produce", topic, "-f", "%k %s", "--keep-partitions", *at, input="").code == 2
