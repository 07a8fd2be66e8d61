"""Lines of JSON for `klog produce -i jsonl` that no `klog tail` has written, and exact copies by those that it has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from klog.errors import UsageError
from klog.render.jsonl import from_line
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog

HOSTILE: list[dict[str, Any]] = [
    {"headers": [{"key": "\ud800", "value": "x"}]},  # confluent-kafka ends the process by SIGSEGV (seen with 2.16)
    {"headers": {"a\udfff": "x"}},
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


@pytest.mark.parametrize("row", HOSTILE, ids=range(len(HOSTILE)))
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
    lines = ['{"value": "a", "headers": {"a\\u0000b": "x"}}', '{"value": "b", "headers": {"h": "x"}}']
    ran = klog("produce", topic, "--create", "-i", "jsonl", *at, input="\n".join(lines))
    assert ran.code == 1 and "line 1" in ran.stderr and "NUL" in ran.stderr
    assert klog("tail", topic, "-o", "start", "-e", *at).stdout == "b\n"
