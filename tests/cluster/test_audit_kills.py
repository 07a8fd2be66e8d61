"""The audit while a leader is killed: what producers say they sent is there, once; a planted loss is found then."""

from __future__ import annotations

import asyncio
import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

import klog
from klog.client.cluster import Cluster
from klog.tools.audit import report as audit
from klog.tools.audit import run as audit_run
from tests.cluster_fixture import RunningCluster

WINDOW_MS = 10_000
MESSAGES = 4000


@pytest.mark.long("tests/tools/test_audit.py has the counts; killed brokers are in test_produce_and_tail.py")
def test_counts_are_equal_whoever_died_and_a_planted_loss_is_found(three: RunningCluster, topic: str) -> None:
    three.create(topic, 2)
    audit_topic = f"{topic}.audit"
    now_ms = round(time.time() * 1000)
    start_ms = now_ms - now_ms % WINDOW_MS - 60 * WINDOW_MS

    async def compared(*, exact: bool = False) -> audit.AuditReport:
        options = audit.ReportOptions(audit_topic=audit_topic, grace_ms=0, exact=exact)
        async with await Cluster.connect(three.bootstrap) as cluster:
            return await audit.report(cluster, options)

    async def counted() -> audit_run.AuditRun:
        async with await Cluster.connect(three.bootstrap) as cluster:
            return await audit_run.run(cluster, audit_run.RunOptions(tier="copy", audit_topic=audit_topic))

    with klog.Producer(
        bootstrap_servers=three.bootstrap,
        producer_type="async",
        linger_ms=2,
        audit=True,
        audit_host="web-1",
        audit_window_ms=WINDOW_MS,
        audit_topic=audit_topic,
    ) as producer:
        sent = []
        for number in range(MESSAGES):
            at_ms = start_ms + number * 2 * WINDOW_MS // MESSAGES
            sent.append(producer.send(topic, klog.Message(b"%d" % number, key=b"%d" % number, timestamp=at_ms)))
            if number == MESSAGES // 2:
                sent[number // 2].result(60)
                victim = three.leader_of(topic)
                three.kill(victim)
        producer.flush(90)
    assert all(one.exception() is None for one in sent)
    three.start(victim)
    three.wait_in_sync(topic)
    well = asyncio.run(compared(exact=True))
    live = [(row.messages, row.missing, row.extra, row.state) for row in well.rows if row.tier == "live"]
    assert live == [(MESSAGES // 2, 0, 0, "ok")] * 2
    assert asyncio.run(counted()).read == MESSAGES
    consumer = Consumer({"bootstrap.servers": three.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    first = consumer.consume(26, 30)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": three.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, first[25].offset())]).values():
        future.result(30)
    report = asyncio.run(compared())
    found = {(row.tier, row.missing, row.extra, row.producers) for row in report.rows if row.is_gap}
    assert found == {("live", 25, 0, ("web-1 -25",))}
