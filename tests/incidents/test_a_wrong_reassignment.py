"""A plan moves all replicas to one broker: klog shows who did it, and moves them back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.incidents.operator import Operator


@pytest.mark.long("a document that is walked")
def test_a_wrong_reassignment(operator: Operator, topic: str, tmp_path: Path) -> None:
    cluster = operator.cluster
    cluster.create(topic, assignment=[[1, 2], [2, 3]], min_insync_replicas="1")
    operator.text("produce", topic, input="1\n2\n3\n")
    plan = tmp_path / "plan.json"
    partitions = [{"topic": topic, "partition": number, "replicas": [3]} for number in (0, 1)]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    assert operator.run("reassign", "execute", plan, "--yes", "--wait", "30s").code == 0

    def replicas() -> list[list[int]]:
        return [row["replicas"] for row in operator.rows("topic", "describe", topic)]

    cluster.wait_until(lambda: replicas() == [[3], [3]], "the broker that is asked knows it")

    assert operator.runbook("klog reassign status").rows == []
    steps = operator.runbook("klog status orders-0", orders=topic).rows
    assert "3" in steps[0]["what"] and "replicas 3" in steps[0]["evidence"], "well, but on one broker alone"
    told = operator.event(
        "klog events orders --kind act", "act", orders=topic, until=lambda row: "reassignment" in row["what"]
    )
    (act,) = operator.runbook("klog events ACT", ACT=told["act"]).rows
    assert act["kind"] == "reassignment"
    assert (act["before"], act["after"]) == ("0=[1, 2] 1=[2, 3]", "0=[3] 1=[3]")
    operator.runbook("klog undo ACT", ACT=act["act"])
    cluster.wait_until(lambda: replicas() == [[1, 2], [2, 3]], "moved back")
    cluster.wait_in_sync(topic)
    assert operator.runbook("klog reassign cancel").rows == []  # all have ended
    assert sorted(operator.values(topic)) == ["1", "2", "3"]
