"""`klog perf` through the command itself: what it says it did is what is in the log; wrong input is told before."""

from __future__ import annotations

import signal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.client.cluster import Cluster
from klog.client.positions import parse_range
from klog.tools.perf import consume as perf_consume
from klog.tools.perf import produce as perf_produce
from klog.tools.perf.measurement import Latencies
from tests.broker_fixture import RunningBroker
from tests.cli.process import started
from tests.cli.runner import klog
from tests.rows import each
from tests.tools.verbs import make_topic, read, run

ALL = parse_range("start:end")
PRODUCED = (
    "start.time, end.time, compression, message.size, batch.size, total.data.sent.in.MB, MB.sec, "
    "total.data.sent.in.nMsg, nMsg.sec"
)
CONSUMED = "start.time, end.time, fetch.size, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"


@given(st.lists(st.floats(0, 20), min_size=1, max_size=60), st.sampled_from([1, 50, 99, 99.9, 100]))
def test_percentiles_are_those_of_the_sorted_list(times: list[float], percent: float) -> None:
    whole = Latencies()
    halves = [Latencies(), Latencies()]
    for at, one in enumerate(times):
        whole.add(one)
        halves[at % 2].add(one)
    exact = sorted(times)[max(-(-len(times) * int(percent * 10) // 1000), 1) - 1] * 1000
    found = whole.percentile_ms(percent)
    assert found is not None and exact * 0.99 - 0.001 <= found <= exact
    assert Latencies(*halves).percentile_ms(percent) == found
    assert whole.largest_ms == pytest.approx(max(times) * 1000, abs=0.001)
    assert whole.average_ms == pytest.approx(sum(times) / len(times) * 1000, abs=0.01)


def test_of_nothing_there_is_no_percentile() -> None:
    nothing = Latencies(Latencies())
    assert (nothing.percentile_ms(50), nothing.average_ms, nothing.largest_ms) == (None, None, None)


def test_producing_and_consuming(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 3)
    at = ["-B", broker.bootstrap]
    sent = klog("perf", "produce", topic, "--messages", 2000, "--message-size", 150, "--threads", 3, "-o", "json", *at)
    assert sent.code == 0, sent.stderr
    (row,) = sent.rows
    assert (row["messages"], row["bytes"], row["threads"], row["acks"]) == (2000, 300_000, 3, "all")
    assert row["messages_per_s"] > 0 and 0 < row["p50_ms"] <= row["p99_ms"] <= row["p99_9_ms"]
    assert row["start_time"] < row["end_time"] and row["error"] is None
    shown, _ = read(broker.bootstrap, topic, offset=ALL)
    values = shown.split(b"\n")[:-1]
    assert len(values) == len(set(values)) == 2000 and {len(value) for value in values} == {150}

    got = klog("perf", "consume", topic, "--threads", 2, "-o", "json", *at)
    assert got.code == 0, got.stderr
    (row,) = got.rows
    assert (row["messages"], row["bytes"], row["threads"], row["fetch_bytes"]) == (2000, 300_000, 2, 4 << 20)
    some = klog("perf", "consume", topic, "--messages", 700, "--fetch-size", "20KB", "-o", "json", *at)
    assert some.rows[0]["messages"] == 700 and some.rows[0]["fetch_bytes"] == 20_000
    more = klog("perf", "consume", topic, "--messages", 9000, *at)
    assert more.code == 0 and "only 2,000 messages" in more.stderr and "MESSAGES-PER-S" in more.stdout


def test_lines_as_the_old_tools_write_them(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    at = ["-B", broker.bootstrap]
    words = ["--messages", 50, "--message-size", 1000, "--compression", "gzip", "--batch-size", 10, "--csv"]
    header, line = klog("perf", "produce", topic, *words, *at).stdout.splitlines()
    assert header == PRODUCED
    start, end, *rest = line.split(", ")
    assert len(start) == len("2026-02-01 10:00:00:123") and start <= end
    assert rest[:4] == ["1", "1000", "10", "0.05"] and rest[5] == "50"
    (alone,) = klog("perf", "consume", topic, "--csv", "--no-header", *at).stdout.splitlines()
    assert klog("perf", "consume", topic, "--csv", *at).stdout.splitlines()[0] == CONSUMED
    assert len(alone.split(", ")) == 7 and alone.split(", ")[5] == "50"
    header, line = klog("perf", "latency", topic, "--messages", 3, "--csv", *at).stdout.splitlines()
    assert len(header.split(", ")) == len(line.split(", ")) == 10


def test_sizes_vary_and_messages_are_numbered(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    make_topic(broker.bootstrap, f"{topic}-b")
    words = ["--messages", 200, "--vary-message-size", "--initial-message-id", 1000, "--acks", "1", "-o", "json"]
    ran = klog("perf", "produce", topic, f"{topic}-b", *words, "-B", broker.bootstrap)
    assert ran.code == 0, ran.stderr
    values = []
    for name in (topic, f"{topic}-b"):
        # What acks=1 acknowledges is visible a flush later: it is waited for.
        shown, _ = read(broker.bootstrap, name, offset=parse_range("start"), count=100)
        assert len(shown.splitlines()) == 100, "in turn"
        values += shown.split(b"\n")[:-1]
    assert len({len(value) for value in values}) > 20 and all(1 <= len(value) <= 100 for value in values)
    assert sum(map(len, values)) == ran.rows[0]["bytes"]
    numbered = {int(value.split(b":")[1]) for value in values if value.count(b":") == 2}
    assert numbered and numbered <= set(range(1000, 1200))


@each(("rate", "least_s"), [("100/s", 0.19), ("10KB/s", 0.19)])
def test_a_rate_is_kept(broker: RunningBroker, topic: str, rate: str, least_s: float) -> None:
    make_topic(broker.bootstrap, topic)
    words = ["--messages", 20, "--message-size", 100, "--rate", rate, "--threads", 2, "-o", "json"]
    begun = time.monotonic()
    ran = klog("perf", "produce", topic, *words, "-B", broker.bootstrap)
    assert ran.code == 0 and ran.rows[0]["messages"] == 20
    assert time.monotonic() - begun > least_s * 0.9


@each("extra", [[], ["--rate", "200/s"]])
def test_latency(broker: RunningBroker, topic: str, extra: list[str]) -> None:
    make_topic(broker.bootstrap, topic, 2)
    words = ["--messages", 30, "--message-size", 8, "-p", 1, *extra, "-o", "json"]
    ran = klog("perf", "latency", topic, *words, "-B", broker.bootstrap)
    assert ran.code == 0, ran.stderr
    (row,) = ran.rows
    assert row["messages"] == 30
    assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["p99_9_ms"] <= row["max_ms"]
    assert 0 < row["average_ms"] <= row["max_ms"]


def test_what_is_refused_is_counted_and_fails(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, max_message_bytes="5000")
    words = ["--messages", 3, "--message-size", "20KB", "-X", "message.max.bytes=1000000"]
    ran = klog("perf", "produce", topic, *words, "-o", "json", "-B", broker.bootstrap)
    assert ran.code == 1 and ran.rows[0]["messages"] == 0
    assert ran.rows[0]["error"] == "FAILED" and "3 messages" in ran.rows[0]["message"]
    ran = klog("perf", "produce", topic, *words, "--csv", "-B", broker.bootstrap)
    assert ran.code == 1 and "3 messages" in ran.stderr
    ran = klog("perf", "latency", topic, "--message-size", "20KB", "-B", broker.bootstrap)
    assert ran.code == 1 and "acknowledged" in ran.stderr


def test_ctrl_c_tells_the_figures_so_far(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    words = ["--messages", "1000000", "--rate", "50/s", "--csv", "--no-header"]
    with started("perf", "produce", topic, *words, "-B", broker.bootstrap) as process:
        assert process.stdout is not None
        with started("tail", topic, "-c", "1", "-o", "start", "-B", broker.bootstrap) as reader:
            assert reader.wait(30) == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130  # what is left takes hours
        assert int(process.stdout.read().split(b", ")[7]) > 0


def test_the_verbs_can_be_used_without_the_command(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    load = perf_produce.ProduceLoad(messages=10, acks="0")

    async def measured(cluster: Cluster) -> int:
        assert (await (await perf_produce.produce(cluster, [topic], load)).run()).messages == 10
        while (row := await (await perf_consume.consume(cluster, [topic])).run()).messages < 10:
            pass  # acks=0: nobody waited
        return row.bytes

    assert run(broker.bootstrap, measured) == 1000
