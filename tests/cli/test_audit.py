"""``klog audit``: its exit codes, what it says, and wrong use."""

from __future__ import annotations

import json
import signal
import time

import klog as library
from tests.broker_fixture import RunningBroker
from tests.cli.process import started
from tests.cli.runner import klog
from tests.tools.verbs import make_topic

WINDOW_MS = 10_000


def test_a_gap_is_exit_1_and_is_named(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    own = ["--audit-topic", f"{topic}.audit", "-B", broker.bootstrap]
    now_ms = round(time.time() * 1000)
    start_ms = now_ms - now_ms % WINDOW_MS - 20 * WINDOW_MS
    settings = {"audit_host": "web-1", "audit_window_ms": WINDOW_MS, "audit_topic": f"{topic}.audit"}
    with library.Producer(bootstrap_servers=broker.bootstrap, audit=True, **settings) as producer:
        producer.send(topic, [library.Message(b"v", timestamp=start_ms + i) for i in range(9)])
    well = klog("audit", "report", topic, *own)
    assert (well.code, "1 window" in well.stderr) == (0, True)
    longer = klog("audit", "report", topic, *own, "--window", "7s")
    assert " 70 s" in longer.stderr and " 7 s" in longer.stderr
    assert " 20 s" not in klog("audit", "report", topic, *own, "--window", "20s").stderr
    assert klog("audit", "run", topic, *own, "-o", "json").rows[0]["messages"] == 9
    assert klog("topic", "delete", topic, "-y", "-B", broker.bootstrap).code == 0
    gone = klog("audit", "report", topic, *own, "-o", "json")
    assert gone.code == 1
    live = [row for row in gone.rows if row["tier"] == "live"]
    assert [(row["messages"], row["missing"], row["extra"], row["state"], row["producers"]) for row in live] == [
        (0, 9, 0, "gap", ["web-1 -9"])
    ]
    shown = klog("audit", "report", topic, *own, "--only-gaps")
    assert shown.code == 1
    assert "1 differ" in shown.stderr and "topic" in shown.stderr


def test_counted_again_and_again_until_it_is_stopped(broker: RunningBroker, topic: str) -> None:
    """It begins before anybody has sent, counts what comes, and what it has counted is published when it is stopped."""
    audit_topic = f"{topic}.audit"
    make_topic(broker.bootstrap, topic)
    words = ["audit", "run", "--every", "200ms", "--audit-topic", audit_topic, "-B", broker.bootstrap]
    settings = {"audit_host": "web-1", "audit_window_ms": WINDOW_MS, "audit_topic": audit_topic}
    with started(*words) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert audit_topic.encode() in process.stderr.readline()
        start_ms = round(time.time() * 1000) // WINDOW_MS * WINDOW_MS - 20 * WINDOW_MS
        for count in (9, 4):
            with library.Producer(bootstrap_servers=broker.bootstrap, audit=True, **settings) as producer:
                producer.send(topic, [library.Message(b"v", timestamp=start_ms + i) for i in range(count)])
            row = json.loads(process.stdout.readline())
            assert (row["topic"], row["messages"], row["state"], row["producers"]) == (
                topic,
                count,
                "counted",
                [f"web-1 {count}"],
            )
        for _ in range(2):  # as `timeout` does
            process.send_signal(signal.SIGTERM)
        rest, said = process.communicate(timeout=30)
        assert (process.returncode, rest) == (0, b"")
        assert b"stopped" in said
    again = klog("audit", "run", "--audit-topic", audit_topic, "-B", broker.bootstrap, "-o", "json")
    assert (again.code, again.rows) == (0, [])


def test_produce_takes_part(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    audit_topic = f"{topic}.audit"
    words = ["produce", topic, "--audit", "-X", f"audit.topic={audit_topic}", "-B", broker.bootstrap]
    assert klog(*words, input="a\nb\n").code == 0
    said = klog("audit", "report", "--audit-topic", audit_topic, "-B", broker.bootstrap, "-o", "json")
    assert (said.code, said.rows[0]["messages"], said.rows[0]["state"]) == (0, 2, "open")
