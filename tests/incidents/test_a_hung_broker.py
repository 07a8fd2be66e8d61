"""A broker hangs: it is not taken for a dead one, goes on when it can, and loses nothing.

There is nothing to take back: the process goes on, and klog has changed nothing.
"""

from __future__ import annotations

import shlex
import subprocess

import pytest

from tests.incidents.operator import Operator, runbook_lines


@pytest.mark.long("a document that is walked")
def test_a_hung_broker(operator: Operator, topic: str) -> None:
    cluster = operator.cluster
    cluster.create(topic, assignment=[[3, 1, 2]])
    operator.text("produce", topic, input="1\n2\n3\n")
    cluster.pause(3)
    cluster.wait_for_leader(topic, other_than=3)

    # Until its address is in the events, which may have been led by this very broker, it is "dead or hangs".
    cause = operator.cause("broker", 3, until=lambda row: "kill -CONT" in (row["do"] or ""))
    assert operator.runbook("klog status broker 3").code == 1
    findings = operator.run("status")
    assert findings.code != 0 and any("hangs" in str(row["found"]) for row in findings.rows), findings
    operator.text("produce", topic, input="4\n")

    advice = "kill -CONT PID"
    assert advice in runbook_lines() and advice.rpartition(" ")[0] in cause["do"]
    subprocess.run(shlex.split(advice.replace("PID", str(cluster.brokers[3].pid))), check=True)
    cluster.paused.discard(3)
    cluster.wait_in_sync(topic)
    assert sorted(operator.values(topic)) == ["1", "2", "3", "4"]
    operator.runbook("klog topic verify orders", orders=topic)
