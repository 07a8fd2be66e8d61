"""The audit over real brokers and clients: a loss that was planted is found, a copy too, and nothing else is."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import klog
from klog.admin.topics import set_topic_settings
from klog.client.audit import HEADER, read_stamp
from klog.client.cluster import Cluster
from klog.client.positions import parse_range
from klog.clock import SystemClock
from klog.errors import NoSuchThing, Refused, TopicAlreadyExists, UnknownTopicOrPartition, UsageError
from klog.export.manifest import ExportedPartition, ExportIdentity, Manifest
from klog.export.root import ExportRoot
from klog.names import TopicPartition
from klog.render.values import moment
from klog.tools.audit import report as audit
from klog.tools.audit import run as audit_run
from klog.tools.audit.report import AuditReport, AuditRow, ReportOptions
from klog.tools.audit.run import RunOptions
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog as klog_command
from tests.tools.verbs import delete_before, delete_topic, held, make_topic, run, send
from tests.until import until

ROOT = Path(__file__).resolve().parents[2]
WINDOW_MS = 10_000


class Stage:
    """An audit topic of the test's own on the shared broker, and times of windows that are over."""

    def __init__(self, broker: RunningBroker, topic: str) -> None:
        self.bootstrap = broker.bootstrap
        self.topic = topic
        self.audit_topic = f"{topic}.audit"
        now_ms = round(time.time() * 1000)
        self.start_ms = now_ms - now_ms % WINDOW_MS - 60 * WINDOW_MS

    def producer(self, host: str, **settings: Any) -> klog.Producer:
        return klog.Producer(
            **{"bootstrap_servers": self.bootstrap, **settings},
            audit=True,
            audit_host=host,
            audit_topic=self.audit_topic,
            audit_window_ms=WINDOW_MS,
        )

    def messages(self, count: int, windows: int = 2) -> list[klog.Message]:
        """Spread over that many windows, in the order of their times."""
        return [
            klog.Message(b"v%d" % i, key=b"%d" % i, timestamp=self.start_ms + i * windows * WINDOW_MS // count)
            for i in range(count)
        ]

    def begin(self, count: int) -> None:
        """A topic with messages of one window, by web-1."""
        make_topic(self.bootstrap, self.topic)
        with self.producer("web-1") as producer:
            producer.send(self.topic, self.messages(count, 1))

    def report(self, *, mirror: str | None = None, export: str | None = None, **options: Any) -> AuditReport:
        given = {"topics": (self.topic,), "audit_topic": self.audit_topic, "grace_ms": 0, **options}

        async def verb(cluster: Cluster) -> AuditReport:
            if mirror is None:
                return await audit.report(cluster, ReportOptions(**given), export=export)
            async with await Cluster.connect(mirror) as other:
                return await audit.report(cluster, ReportOptions(**given), mirror=other)

        return run(self.bootstrap, verb)

    def run(self, *, cluster: str | None = None, **options: Any) -> audit_run.AuditRun:
        given = {"topics": (self.topic,), "audit_topic": self.audit_topic, **options}

        async def verb(home: Cluster) -> audit_run.AuditRun:
            async with await Cluster.connect(cluster or self.bootstrap) as other:
                return await audit_run.run(other, RunOptions(**given), publish_to=home)

        return run(self.bootstrap, verb)

    def audit_messages(self) -> list[dict[str, Any]]:
        return [json.loads(one.value()) for one in held(self.bootstrap, self.audit_topic)]


@pytest.fixture
def stage(broker: RunningBroker, topic: str) -> Stage:
    return Stage(broker, topic)


def copy(messages: list[Any], bootstrap: str, topic: str) -> None:
    """As a mirror does: everything of a message kept, its partition too."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for one in messages:
        producer.produce(
            topic, one.value(), one.key(), one.partition(), timestamp=one.timestamp()[1], headers=one.headers()
        )
    assert producer.flush(20) == 0


def of(report: AuditReport, tier: str) -> list[AuditRow]:
    return [row for row in report.rows if row.tier == tier]


def judged(report: AuditReport, tier: str) -> list[tuple[int | None, int | None, int | None, str]]:
    return [(row.messages, row.missing, row.extra, row.state) for row in of(report, tier)]


# --- What is found, and what is not ---


def test_all_is_well(stage: Stage) -> None:
    make_topic(stage.bootstrap, stage.topic, 3)
    with stage.producer("web-1") as producer:
        producer.send(stage.topic, stage.messages(300))
    first_look = stage.report()
    assert judged(first_look, "sent") == [(150, None, None, "sent")] * 2
    assert judged(first_look, "live") == [(150, 0, 0, "ok")] * 2
    assert {row.counted for row in of(first_look, "live")} == {"offsets"}  # nothing was read
    assert [row.window for row in of(first_look, "live")] == [
        moment(stage.start_ms),
        moment(stage.start_ms + WINDOW_MS),
    ]
    exact = stage.report(exact=True)
    assert judged(exact, "live") == judged(first_look, "live")
    assert {row.counted for row in of(exact, "live")} == {"stamps"}
    assert (exact.gaps, exact.clocks, exact.strange, exact.unjudged) == (0, [], 0, 0)


def test_a_time_beyond_the_calendar_hinders_no_other(stage: Stage) -> None:
    """A producer may put any time into a message; such a window never ends."""
    make_topic(stage.bootstrap, stage.topic, 1, message_timestamp_after_max_ms=str(2**62))
    far_ms = 2**60
    with stage.producer("web-1") as producer:
        producer.send(stage.topic, [*stage.messages(10), klog.Message(b"far", timestamp=far_ms)])
    report = stage.report()
    assert judged(report, "live") == [(5, 0, 0, "ok")] * 2 + [(None, None, None, "open")]
    assert report.rows[-1].window == str(far_ms - far_ms % WINDOW_MS)


def test_each_message_says_where_it_comes_from(stage: Stage) -> None:
    make_topic(stage.bootstrap, stage.topic)
    before_ms = time.time_ns() // 1_000_000
    with stage.producer("web-1") as producer:
        producer.send(stage.topic, [klog.Message(b"x", headers=(("mine", b"1"),)), klog.Message(b"y", timestamp=77)])
    one, two = held(stage.bootstrap, stage.topic)
    names = [name for name, _ in one.headers()]
    assert names == ["mine", HEADER]
    first, second = (read_stamp(dict(each.headers())[HEADER]) for each in (one, two))
    assert first is not None and second is not None
    assert (first.host, first.number, second.number, second.time_ms) == ("web-1", 0, 1, 77)
    assert before_ms <= first.time_ms == one.timestamp()[1] <= time.time_ns() // 1_000_000


def test_producers_out_of_order_are_no_gap(stage: Stage) -> None:
    """The brokers' first look counts some of these in the next window, and is not believed."""
    make_topic(stage.bootstrap, stage.topic)
    late = stage.messages(100)
    with stage.producer("web-1") as one, stage.producer("web-2") as two:
        one.send(stage.topic, late[:60])
        two.send(stage.topic, late)
        one.send(stage.topic, late[60:])
    report = stage.report()
    assert judged(report, "live") == [(100, 0, 0, "ok")] * 2
    assert "stamps" in {row.counted for row in of(report, "live")}


def test_messages_that_were_deleted_are_missing_and_their_host_is_named(stage: Stage) -> None:
    make_topic(stage.bootstrap, stage.topic, 2)
    with stage.producer("web-1") as one, stage.producer("web-2") as two:
        for message in stage.messages(40):
            one.send(stage.topic, message, partition=0)
        two.send(stage.topic, stage.messages(40), partition=1)
    assert stage.report().gaps == 0
    first = held(stage.bootstrap, stage.topic, 2)
    web_1 = [message for message in first if message.partition() == 0]
    delete_before(stage.bootstrap, stage.topic, web_1[7].offset())
    report = stage.report()
    assert judged(report, "live") == [(33, 7, 0, "gap"), (40, 0, 0, "ok")]
    assert (report.gaps, of(report, "live")[0].producers) == (1, ("web-1 -7",))
    assert stage.report(only_gaps=True).rows == [of(report, "live")[0]]
    late = parse_range(f"@{stage.start_ms + WINDOW_MS}")
    assert stage.report(times=late).gaps == 0
    assert stage.report(times=parse_range(f"@{stage.start_ms}:@{stage.start_ms + 1}")).gaps == 1


# --- Windows that are not judged ---


def test_a_window_that_is_open_is_not_judged(stage: Stage) -> None:
    make_topic(stage.bootstrap, stage.topic)
    with klog.Producer(
        bootstrap_servers=stage.bootstrap, audit=True, audit_topic=stage.audit_topic, audit_window_ms=20 * 3_600_000
    ) as producer:
        producer.send(stage.topic, b"now")
    report = stage.report()
    assert {row.state for row in report.rows} == {"open"}
    assert judged(report, "live") == [(None, None, None, "open")]
    assert (report.gaps, report.windows, report.unjudged) == (0, 0, 1)
    assert {row.state for row in stage.report(window_ms=None, grace_ms=2**40).rows} == {"open"}


def test_a_producer_that_was_killed_is_unfinished_and_no_gap(stage: Stage) -> None:
    make_topic(stage.bootstrap, stage.topic)
    program = (
        "import sys, time, klog\n"
        "p = klog.Producer(bootstrap_servers=sys.argv[1], audit=True, audit_host='web-9', audit_topic=sys.argv[3],\n"
        "                  audit_window_ms=20 * 3600000, audit_publish_ms=1)\n"
        "p.send(sys.argv[2], [b'x'] * 5)\n"
        "print('sent', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, stage.bootstrap, stage.topic, stage.audit_topic],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"sent\n"
        until(lambda: (said := stage.audit_messages()) and said[-1]["counts"][0]["messages"] == 5, "all are published")
        said = stage.audit_messages()
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
    assert [(one["messages"], one["final"]) for one in said[-1]["counts"]] == [(5, False)]
    assert {row.state for row in stage.report().rows} == {"open"}


def test_a_program_that_ends_has_published_all_it_sent(stage: Stage) -> None:
    make_topic(stage.bootstrap, stage.topic)
    program = (
        "import sys, klog\n"
        "p = klog.Producer(bootstrap_servers=sys.argv[1], audit=True, audit_topic=sys.argv[3], producer_type='async')\n"
        "p.send(sys.argv[2], [b'x'] * 5)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, stage.bootstrap, stage.topic, stage.audit_topic], cwd=ROOT, check=True
    )
    (said,) = stage.audit_messages()
    assert [(one["messages"], one["final"]) for one in said["counts"]] == [(5, True)]


def test_what_retention_was_to_remove_is_judged_by_an_earlier_run(stage: Stage) -> None:
    make_topic(stage.bootstrap, stage.topic)
    with stage.producer("web-1") as producer:
        for message in stage.messages(20, 1):
            producer.send(stage.topic, message)
    with klog.Producer(bootstrap_servers=stage.bootstrap) as producer:
        producer.send(stage.topic, b"now")  # for whose sake the segment stays
    there = held(stage.bootstrap, stage.topic)
    shorter = {"retention.ms": "300000"}
    run(stage.bootstrap, lambda cluster: set_topic_settings(cluster, stage.topic, shorter, ()))
    assert judged(stage.report(), "live") == [(None, None, None, "expired")]
    assert stage.run().read == 21
    delete_before(stage.bootstrap, stage.topic, there[5].offset())
    report = stage.report()
    assert judged(report, "live") == [(20, 0, 0, "ok")]
    assert of(report, "live")[0].counted == "run"


# --- Runs ---


def test_a_run_counts_what_is_new_and_another_tier_is_judged_by_it(stage: Stage) -> None:
    make_topic(stage.bootstrap, stage.topic, 2)
    messages = stage.messages(60)
    with stage.producer("web-1") as producer:
        producer.send(stage.topic, messages[:30])
    first = stage.run(tier="copy")
    assert (first.read, [(row.messages, row.producers) for row in first.rows]) == (30, [(30, ("web-1 30",))])
    with stage.producer("web-1") as producer:
        producer.send(stage.topic, messages[30:])
    assert judged(stage.report(), "copy") == [(30, 0, 0, "ok"), (0, 30, 0, "gap")]
    second = stage.run(tier="copy")
    assert (second.read, [row.messages for row in second.rows]) == (30, [30])
    assert stage.run(tier="copy").rows == []
    report = stage.report()
    assert judged(report, "copy") == judged(report, "live") == [(30, 0, 0, "ok")] * 2
    assert {row.counted for row in of(report, "copy")} == {"run"}
    again = stage.run(tier="copy", anew=True)
    assert again.read == 60
    assert judged(stage.report(), "copy") == [(30, 0, 0, "ok")] * 2
    silent = stage.run(tier="copy", anew=True, publish=False)
    assert silent.read == 60
    assert len(stage.audit_messages()) == 2 + 4


def test_a_topic_that_was_made_anew_is_counted_anew(stage: Stage) -> None:
    stage.begin(20)
    assert stage.run(tier="copy").read == 20
    delete_topic(stage.bootstrap, stage.topic)
    gone = stage.report()
    assert judged(gone, "live") == [(0, 20, 0, "gap")]
    assert "topic" in (of(gone, "live")[0].note or "")
    make_topic(stage.bootstrap, stage.topic)
    assert stage.run(tier="copy").read == 0
    assert judged(stage.report(), "copy") == [(0, 20, 0, "gap")]


# --- A mirror ---


def test_what_a_mirror_misses_and_has_twice_is_found(stage: Stage, make_broker: Callable[..., RunningBroker]) -> None:
    mirror = make_broker().start()
    make_topic(stage.bootstrap, stage.topic, 2)
    make_topic(mirror.bootstrap, stage.topic, 2)
    with stage.producer("web-1") as one, stage.producer("web-2") as two:
        one.send(stage.topic, stage.messages(60))
        two.send(stage.topic, stage.messages(60), partition=1)
    there = held(stage.bootstrap, stage.topic, 2)
    web_2 = [m for m in there if read_stamp(dict(m.headers())[HEADER]).host == "web-2"]  # type: ignore[union-attr]
    left_out = {(m.partition(), m.offset()) for m in web_2[:4]}
    copy([m for m in there if (m.partition(), m.offset()) not in left_out], mirror.bootstrap, stage.topic)
    copy(web_2[50:52], mirror.bootstrap, stage.topic)
    report = stage.report(mirror=mirror.bootstrap)
    assert judged(report, "live") == [(60, 0, 0, "ok")] * 2
    assert judged(report, "mirror") == [(56, 4, 0, "gap"), (62, 0, 2, "gap")]
    assert [row.producers for row in of(report, "mirror")] == [("web-2 -4",), ("web-2 +2",)]
    # The same, counted by a run on the mirror and published at home.
    assert stage.run(cluster=mirror.bootstrap, tier="offline").read == 118
    assert judged(stage.report(), "offline") == judged(report, "mirror")
    copy([m for m in there if (m.partition(), m.offset()) in left_out], mirror.bootstrap, stage.topic)
    assert judged(stage.report(mirror=mirror.bootstrap), "mirror") == [(60, 0, 0, "ok"), (62, 0, 2, "gap")]


# --- An export ---


def test_an_export_is_judged_by_its_manifests(stage: Stage, tmp_path: Path) -> None:
    stage.begin(20)
    ten_minutes = 600_000
    start_ms = stage.start_ms - stage.start_ms % ten_minutes
    one, end = TopicPartition(stage.topic, 0), held(stage.bootstrap, stage.topic)[-1].offset() + 1

    def export(
        name: str, upto: int, messages: int, *, began: int = 0, cluster: str | None = None, topic: str = stage.topic
    ) -> str:
        root = ExportRoot(str(tmp_path / name))
        starts = {TopicPartition(topic, 0): began}
        root.create(ExportIdentity(cluster, "parquet", {topic: None}, starts, "2026-01-01T00:00:00.000Z", "0.1.0"))
        found = {one: ExportedPartition(0, upto, messages)}
        windows = {(stage.topic, start_ms): messages}
        about = {"gaps": (), "files": (), "klog": "0.1.0", "engine": "none", "started_at": "a", "committed_at": "b"}
        staged = root.stage(0)
        root.flush(
            staged, Manifest(0, staged.run, None, "parquet", "c", {stage.topic: None}, found, windows=windows, **about)
        )
        assert root.commit(staged)
        return str(tmp_path / name)

    def tier(root: str) -> list[tuple[int | None, int | None, int | None, str]]:
        return judged(stage.report(export=root, window_ms=ten_minutes), "export")

    assert tier(export("whole", end, 20)) == [(20, 0, 0, "ok")]
    assert tier(export("short", end, 17)) == [(17, 3, 0, "gap")]
    assert tier(export("behind", end - 1, 12)) == [(12, None, None, "open")]
    assert tier(export("later", end, 15, began=5)) == [(15, None, None, "earlier")]
    with pytest.raises(NoSuchThing, match="export"):
        tier(export("not its topic", end, 0, topic="another"))
    with pytest.raises(Refused, match="another-cluster"):
        tier(export("of another cluster", end, 20, cluster="another-cluster"))
    with pytest.raises(UsageError, match="10 min"):
        stage.report(export=str(tmp_path / "whole"))


# --- Clocks ---


class HourAhead(SystemClock):
    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000


def test_a_producer_whose_clock_is_ahead_of_the_brokers_is_named(stage: Stage) -> None:
    make_topic(stage.bootstrap, stage.topic)
    with stage.producer("right") as producer:
        producer.send(stage.topic, stage.messages(10, 1))
    with stage.producer("fast", clock=HourAhead()) as producer:
        producer.send(stage.topic, klog.Message(b"x"))
    report = stage.report()
    (said,) = report.clocks
    assert re.search(r"\bfast\b.* 3\d* s\b.*\bbroker", said)
    assert {
        row.state for row in report.rows if isinstance(row.window, datetime) and row.window > datetime.now(UTC)
    } == {"open"}


def test_stamps_of_a_time_that_nobody_has_published_are_seen_once_they_were_counted(stage: Stage) -> None:
    stage.begin(10)
    (one, *_) = held(stage.bootstrap, stage.topic)
    stamp = dict(one.headers())[HEADER].split()
    elsewhere_ms = stage.start_ms - 30 * WINDOW_MS
    forged = klog.Message(b"x", headers=((HEADER, b"%d 99 %s %s" % (elsewhere_ms, stamp[2], stamp[3])),))
    with klog.Producer(bootstrap_servers=stage.bootstrap) as producer:
        producer.send(stage.topic, forged._replace(timestamp=elsewhere_ms))
    assert stage.report().gaps == 0  # it is in no window that is looked at
    stage.run(tier="copy")
    report = stage.report(only_gaps=True, exact=True)
    assert [(row.tier, row.messages, row.extra, row.producers) for row in report.rows] == [
        ("live", 1, 1, ("web-1 +1",)),
        ("copy", 1, 1, ("web-1 +1",)),
    ]


# --- klog produce --audit, and wrong use ---


def test_produce_takes_part(stage: Stage) -> None:
    make_topic(stage.bootstrap, stage.topic, 2)
    old = f'{{"value": "x", "timestamp": {stage.start_ms}}}\n'.encode()
    receipt = send(stage.bootstrap, stage.topic, old * 7, input="jsonl", audit=True)
    assert receipt.messages == 7
    report = stage.report(audit_topic="klog.audit")
    rows = [row for row in report.rows if row.topic == stage.topic]
    assert [(row.tier, row.messages, row.state) for row in rows] == [("sent", 7, "sent"), ("live", 7, "ok")]
    lines = send(stage.bootstrap, stage.topic, b"a\nb\nc\n", audit=True)
    assert lines.messages == 3
    assert all(read_stamp(dict(one.headers())[HEADER]) for one in held(stage.bootstrap, stage.topic, 2))


def stamps(stage: Stage) -> list[bool]:
    """Of each message of the topic, whether it is stamped."""
    return [HEADER in dict(one.headers() or ()) for one in held(stage.bootstrap, stage.topic)]


def test_a_topic_says_whether_it_is_audited(stage: Stage) -> None:
    plain = {"bootstrap_servers": stage.bootstrap, "audit_topic": stage.audit_topic, "metadata_max_age_ms": 200}
    make_topic(stage.bootstrap, stage.topic)
    with klog.Producer(**plain) as producer:
        producer.send(stage.topic, [b"1", b"2"])
        send(stage.bootstrap, stage.topic, b"3\n")
        assert stamps(stage) == [False] * 3
        run(stage.bootstrap, lambda cluster: set_topic_settings(cluster, stage.topic, {"klog.audit.enable": "true"}))
        send(stage.bootstrap, stage.topic, b"4\n")
        send(stage.bootstrap, stage.topic, b"5\n", audit=False)
        assert stamps(stage)[3:] == [True, False]
        deadline = time.monotonic() + 20
        while not stamps(stage)[-1]:  # the producer asks again as long as it runs
            assert time.monotonic() < deadline
            producer.send(stage.topic, b"6")
    before = len(stamps(stage))
    with klog.Producer(**plain) as producer, klog.Producer(**plain, audit=False) as silent:
        producer.send(stage.topic, [b"7", b"8"])
        silent.send(stage.topic, b"9")
    assert stamps(stage)[before:] == [True, True, False]
    counts = [(one["counts"][0]["topic"], one["counts"][0]["messages"]) for one in stage.audit_messages()]
    assert counts[-1] == (stage.topic, 2)


def test_a_topic_that_is_made_later_is_asked_again(stage: Stage) -> None:
    plain = {"bootstrap_servers": stage.bootstrap, "audit_topic": stage.audit_topic}
    with klog.Producer(**plain, producer_type="async", linger_ms=0) as producer:
        first = producer.send(stage.topic, b"too early to be counted")
        try:
            make_topic(stage.bootstrap, stage.topic, klog_audit_enable="true")
        except TopicAlreadyExists:  # the broker has made it for the producer
            assert (
                klog_command("topic", "config", stage.topic, "klog.audit.enable=true", "-B", stage.bootstrap).code == 0
            )
        first.result(20)
        deadline = time.monotonic() + 20
        while not stamps(stage)[-1]:
            assert time.monotonic() < deadline
            producer.send(stage.topic, b"counted").result(10)


def test_wrong_use(stage: Stage) -> None:
    with pytest.raises(NoSuchThing, match=stage.topic) as caught:
        stage.report()
    assert "audit=True" in (caught.value.hint or "")
    with pytest.raises(NoSuchThing, match="topics"):
        stage.run(topics=())
    with pytest.raises(UnknownTopicOrPartition):
        stage.run()
    stage.begin(2)
    with pytest.raises(UsageError, match="time"):
        stage.report(times=parse_range("5:9"))
