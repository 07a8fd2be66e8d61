"""A producer wrote garbage for a while: the range is found by time, and a clean copy is made without it.

Taken back is the copy: the topic itself stays as it was.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tests.incidents.operator import Operator


@pytest.mark.long("a document that is walked")
def test_garbage_in_a_time_range(operator: Operator, topic: str) -> None:
    clean = f"{topic}-clean"
    operator.cluster.create(topic)
    hour_ms = 3_600_000
    begin_ms = int(datetime(2026, 2, 1, 3, tzinfo=UTC).timestamp() * 1000)
    lines = [
        {"value": "garbage" if 20 <= number < 30 else f"good {number}", "timestamp": begin_ms + number * hour_ms // 10}
        for number in range(50)
    ]
    operator.text("produce", topic, "-i", "jsonl", input="\n".join(map(json.dumps, lines)) + "\n")

    begin, end = "2026-02-01T05:00:00Z", "2026-02-01T06:00:00Z"
    during = {"orders": topic, "2026-02-01T03:00:00Z": begin, "2026-02-01T04:00:00Z": end}
    line = "klog tail orders -o @2026-02-01T03:00:00Z:@2026-02-01T04:00:00Z -e --grep garbage"
    found = operator.runbook(line, "--output", "jsonl", **during).stdout.splitlines()
    offsets = [json.loads(line)["offset"] for line in found]
    assert len(offsets) == 10
    shown = operator.runbook("klog status message orders-0 4711", **{"orders": topic, "4711": offsets[0]})
    assert shown.code == 0 and len(shown.rows) > 0, "the message is there, and is served: nothing is wrong with the log"
    line = "klog offset list orders --at @2026-02-01T03:00:00Z"
    (first,) = operator.runbook(line, **{"orders": topic, "2026-02-01T03:00:00Z": begin}).rows
    (behind,) = operator.rows("offset", "list", topic, "--at", "@2026-02-01T06:00:00Z")
    assert first["offset"] == offsets[0] and behind["offset"] > offsets[-1]

    names = {"orders": topic, "orders-clean": clean, "4711": first["offset"], "9000": behind["offset"]}
    operator.runbook("klog topic create orders-clean --like orders", **{"orders": topic, "orders-clean": clean})
    before = {name: names[name] for name in ("orders", "orders-clean", "4711")}
    after = {name: names[name] for name in ("orders", "orders-clean", "9000")}
    operator.runbook("klog replay orders orders-clean --from start:4711", "--dry-run", **before)
    assert operator.values(clean) == []
    operator.runbook("klog replay orders orders-clean --from start:4711", **before)
    operator.runbook("klog replay orders orders-clean --from 9000:end", **after)
    assert operator.values(clean) == [line["value"] for line in lines if line["value"] != "garbage"]
    operator.runbook("klog topic delete orders-clean", **{"orders-clean": clean})
    assert clean not in {row["topic"] for row in operator.rows("topic", "list")}
    assert len(operator.values(topic)) == 50
