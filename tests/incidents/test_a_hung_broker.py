"""A broker hangs: it is not taken for a dead one, goes on when it can, and loses nothing."""

from __future__ import annotations

from tests.incidents.operator import Operator


def test_a_hung_broker(operator: Operator, topic: str) -> None:
    cluster = operator.cluster
    cluster.create(topic, assignment=[[3, 1, 2]])
    operator.text("produce", topic, input="1\n2\n3\n")
    cluster.pause(3)
    cluster.wait_for_leader(topic, other_than=3)

    cause = operator.cause("broker", 3, until=lambda row: "hangs" in row["what"])
    assert "kill -CONT" in cause["do"]
    findings = operator.run("check")
    assert findings.code != 0 and any("hangs" in str(row["found"]) for row in findings.rows), findings
    operator.text("produce", topic, input="4\n")

    cluster.cont(3)
    cluster.wait_in_sync(topic)
    assert sorted(operator.values(topic)) == ["1", "2", "3", "4"]
    verified = operator.run("verify", "replicas", topic)
    assert verified.code == 0, verified
