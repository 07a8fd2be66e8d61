"""A producer wrote garbage for a while: the range is found by time, and a clean copy is made without it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from tests.incidents.operator import Operator


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

    found = operator.text("tail", topic, "-o", "start", "-e", "--grep", "^garbage$", "--output", "jsonl").splitlines()
    offsets = [json.loads(line)["offset"] for line in found]
    assert len(offsets) == 10
    (first,) = operator.rows("offset", "list", topic, "--at", "@2026-02-01T05:00:00Z")
    (behind,) = operator.rows("offset", "list", topic, "--at", "@2026-02-01T06:00:00Z")
    assert first["offset"] == offsets[0] and behind["offset"] > offsets[-1]

    operator.cluster.create(clean)
    for part in (f"start:{first['offset']}", f"{behind['offset']}:end"):
        assert operator.run("replay", topic, clean, "--from", part).code == 0
    assert operator.values(clean) == [line["value"] for line in lines if line["value"] != "garbage"]
    assert len(operator.values(topic)) == 50
