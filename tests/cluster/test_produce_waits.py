"""A live pipe into a topic of three replicas, two of whose brokers are gone for a while: nothing is lost."""

from __future__ import annotations

from klog.client.positions import parse_range
from tests.cli.process import started
from tests.cluster_fixture import RunningCluster
from tests.tools.test_produce_waits import said_until
from tests.tools.verbs import read


def test_two_of_three_are_away(three: RunningCluster, topic: str) -> None:
    three.create(topic, 2, min_insync_replicas="2")
    lines = [b"%04d" % number for number in range(200)]
    away = [one for one in three.running if one != three.wait_for_leader(topic)]
    with started("produce", topic, "-B", three.bootstrap, "--timeout", "3s") as process:
        assert process.stdin is not None and process.stderr is not None
        for number, line in enumerate(lines):
            if number == 100:
                three.kill(*away)
            process.stdin.write(line + b"\n")
            process.stdin.flush()
        said = said_until(process, "waiting")
        assert " again" not in said
        three.heal()
        said_until(process, " again")
        process.stdin.close()
        receipt = process.stderr.read().decode()
        assert process.wait(60) == 0, receipt
    assert "200 messages" in receipt
    found = read(three.bootstrap, topic, offset=parse_range("start:end"))[0].split()
    assert sorted(found) == lines
