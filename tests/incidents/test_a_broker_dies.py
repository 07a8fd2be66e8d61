"""A broker dies: klog names it and what depends on it; it is started again, and leads what it led.

What is taken back is the election: the death itself leaves nothing to undo.
"""

from __future__ import annotations

from tests.incidents.operator import Operator


def test_a_broker_dies(operator: Operator, topic: str) -> None:
    cluster = operator.cluster
    cluster.create(topic, assignment=[[2, 1, 3]])
    operator.text("produce", topic, input="1\n2\n3\n")
    cluster.kill(2)
    cluster.wait_for_leader(topic, other_than=2)

    findings = operator.runbook("klog status")
    assert findings.code != 0 and any("2" in str(row["what"]) for row in findings.rows), findings
    cause = operator.cause("partition", f"{topic}-0", until=lambda row: "is dead" in row["what"])
    assert "broker 2" in cause["what"] and "start broker 2" in cause["do"]
    assert operator.runbook("klog status broker 2").code == 1
    short = operator.runbook("klog topic describe --under-replicated").rows
    assert (topic, 0) in {(row["topic"], row["partition"]) for row in short}
    assert operator.values(topic) == ["1", "2", "3"]  # the others serve it

    operator.start("klog broker start", 2)
    cluster.wait_in_sync(topic)
    assert operator.rows("topic", "describe", topic, "--under-replicated") == []
    (elected,) = operator.runbook("klog topic elect orders-0", orders=topic).rows
    cluster.wait_until(lambda: cluster.leader_of(topic) == 2, "the preferred replica leads")
    if elected["old"] != elected["new"]:  # else the automatic balance was faster, and it is not an act
        operator.runbook("klog undo ACT", ACT=operator.act(kind="election", subject=f"topic {topic}")["act"])
        cluster.wait_for_leader(topic, other_than=2)

    def is_told() -> bool:  # the topic of events is created some seconds after the first start
        told = operator.run("events", "broker", "2", "--kind", "broker-down")
        return told.code == 0 and any("stopped answering" in str(row["reason"]) for row in told.rows)

    cluster.wait_until(is_told, "klog events says so")
    operator.runbook("klog events broker 2")
