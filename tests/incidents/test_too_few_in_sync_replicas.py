"""A broker is away and acks=all is refused: klog names it, accepts less for a while, and takes that back."""

from __future__ import annotations

import pytest

from tests.incidents.operator import Operator


@pytest.mark.long("a document that is walked")
def test_too_few_in_sync_replicas(operator: Operator, topic: str) -> None:
    cluster = operator.cluster
    cluster.create(topic, assignment=[[1, 2]], min_insync_replicas="2")
    operator.text("produce", topic, input="before\n")
    at_limit = operator.runbook("klog topic describe --at-min-isr").rows
    assert topic in {row["topic"] for row in at_limit}
    cluster.kill(2)
    cluster.wait_until(lambda: cluster.isr_of(topic) == {1}, "broker 2 is out of the ISR")
    refused = operator.run("produce", topic, "--give-up-after", "2s", input="refused\n")
    assert refused.code == 1, refused

    under = operator.runbook("klog topic describe --under-min-isr").rows
    assert topic in {row["topic"] for row in under}
    cause = operator.cause(f"{topic}-0", until=lambda row: "broker 2" in row["what"])
    assert cause["do"]
    assert operator.runbook("klog status orders-0", orders=topic).code == 1

    operator.runbook("klog topic config orders min.insync.replicas=1", orders=topic)
    operator.text("produce", topic, input="alone\n")
    operator.runbook("klog undo ACT", ACT=operator.act(kind="topic-settings", subject=f"topic {topic}")["act"])
    assert operator.run("produce", topic, "--give-up-after", "2s", input="refused\n").code == 1

    operator.start("klog broker start", 2)
    cluster.wait_in_sync(topic)
    operator.text("produce", topic, input="after\n")
    assert [one for one in operator.values(topic) if one != "refused"] == ["before", "alone", "after"]
