"""/metrics of a running broker, scraped as Prometheus does; and what is counted."""

from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bench.processes import free_port
from klog.coordination.embedded import ZooKeeperServer
from klog.metrics import RECENT_MAX, SAMPLE_ONE_IN, RequestMeter, Timing, Traffic, times_of
from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server.purgatory import FETCHES_OF_CONNECTION_MAX
from tests.broker_fixture import RunningBroker
from tests.server.asking import ask, create, error, offsets, produce, values
from tests.server.group_speaker import assignment, speakers, subscription
from tests.server.wire import RawConnection, fetch_request, fetched, framed, head
from tests.until import until

ROOT = Path(__file__).resolve().parent.parent.parent
ILLEGAL_GENERATION = 22
Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(broker: RunningBroker) -> Scrape:
    """(sample's name, labels) -> value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.settings['metrics__port']}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Scrape, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


@pytest.fixture(scope="module")
def broker(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with a metrics port, shared by the tests of this file."""
    folder, port = tmp_path_factory.mktemp("measured"), str(free_port())
    with RunningBroker(folder, f"{zookeeper.address}/metrics-{port}", metrics__port=port).running() as running:
        yield running


def test_messages_and_bytes_are_counted_by_topic_and_in_all(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    before = scrape(broker)
    produce(broker.bootstrap, topic, [values(7), values(3)])
    after = scrape(broker)

    assert value(after, "kafka_server_brokertopicmetrics_messagesin_total", topic=topic) == 10
    assert value(after, "kafka_server_brokertopicmetrics_totalproducerequests_total", topic=topic) == 2
    _, end = offsets(broker.bootstrap, topic)
    size = value(after, "kafka_log_log_size", topic=topic, partition="0")
    assert value(after, "kafka_server_brokertopicmetrics_bytesin_total", topic=topic) == size > 10 * 20
    assert value(after, "kafka_log_log_logendoffset", topic=topic, partition="0") == end
    rise = value(after, "kafka_server_brokertopicmetrics_messagesin_total") - value(
        before, "kafka_server_brokertopicmetrics_messagesin_total"
    )
    assert rise == 10


def test_bytes_that_consumers_take_are_counted(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(5)])
    fetched(broker.bootstrap, topic, 0)
    found = scrape(broker)
    assert value(found, "kafka_server_brokertopicmetrics_bytesout_total", topic=topic) == value(
        found, "kafka_server_brokertopicmetrics_bytesin_total", topic=topic
    )


def test_refusals_are_counted_and_make_no_topics_up(broker: RunningBroker, topic: str) -> None:
    before = scrape(broker)
    assert error(fetched(broker.bootstrap, topic, 0)) == 3
    after = scrape(broker)
    name = "kafka_server_brokertopicmetrics_failedfetchrequests_total"
    assert value(after, name) == value(before, name) + 1
    assert not [labels for _, labels in after if ("topic", topic) in labels]


def test_requests_are_counted_by_kind_and_their_time_is_taken(broker: RunningBroker) -> None:
    for _ in range(5):
        ask(broker.bootstrap, ApiKey.DESCRIBE_SELF, 0)
    found = scrape(broker)
    assert value(found, "kafka_network_requestmetrics_requests_total", request="DescribeSelf") >= 5
    timed = value(found, "kafka_network_requestmetrics_totaltimems_count", request="DescribeSelf")
    assert 5 <= timed <= value(found, "kafka_network_requestmetrics_requests_total", request="DescribeSelf")
    assert value(found, "kafka_network_requestmetrics_localtimems_count", request="DescribeSelf") == timed
    assert value(found, "kafka_network_requestmetrics_remotetimems_count", request="DescribeSelf") == timed
    median = value(found, "kafka_network_requestmetrics_totaltimems", request="DescribeSelf", quantile="0.5")
    assert 0 < median < 1000


def test_time_that_a_commit_waits_is_remote_time(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(1)] * 40)
    found = scrape(broker)
    local = value(found, "kafka_network_requestmetrics_localtimems_sum", request="Produce")
    remote = value(found, "kafka_network_requestmetrics_remotetimems_sum", request="Produce")
    total = value(found, "kafka_network_requestmetrics_totaltimems_sum", request="Produce")
    assert remote > 0
    assert local + remote == pytest.approx(total, rel=0.05, abs=1.0)
    assert value(found, "kafka_log_logflushstats_logflushrateandtimems_count") > 0


def test_the_state_of_the_broker_and_its_cluster(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic, 3)
    found = scrape(broker)
    assert value(found, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value(found, "kafka_controller_kafkacontroller_activebrokercount") == 1
    assert value(found, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert value(found, "kafka_server_replicamanager_leadercount") >= 3
    assert value(found, "kafka_server_replicamanager_partitioncount") >= 3
    assert value(found, "kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert value(found, "kafka_server_kafkaserver_brokerstate") == 4
    assert value(found, "kafka_server_sessionexpirelistener_sessionstate", state="CONNECTED") == 1
    assert value(found, "kafka_server_sessionexpirelistener_sessionstate", state="EXPIRED") == 0
    assert value(found, "process_resident_memory_bytes") > 20e6
    assert 0 < value(found, "klog_event_loop_cpu_seconds_total") <= value(found, "process_cpu_seconds_total") + 0.1


def test_min_isr_above_the_factor_is_not_under_it(broker: RunningBroker, topic: str) -> None:
    names = [f"kafka_server_replicamanager_{what}minisrpartitioncount" for what in ("under", "at")]
    create(broker.bootstrap, topic, 2, min_insync_replicas="2")
    found = scrape(broker)
    assert value(found, "kafka_server_replicamanager_leadercount") >= 2
    assert [value(found, name) for name in names] == [0, 0]


def test_a_long_poll_is_in_the_purgatory(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)

    def waiting() -> tuple[float, float]:
        found, name = scrape(broker), "kafka_server_delayedoperationpurgatory_purgatorysize"
        return value(found, name, delayedOperation="Fetch"), value(found, name, delayedOperation="Produce")

    with RawConnection(broker.bootstrap) as connection:
        connection.send(codec.encode_request(fetch_request(topic, 0, max_wait_ms=60_000), 1, "poll"))
        until(lambda: waiting() == (1, 0))
        produce(broker.bootstrap, topic, [values(1)])
        connection.receive(4)
        assert waiting() == (0, 0)


def test_long_polls_are_bounded_and_end_with_their_connection(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    polls = codec.encode_request(fetch_request(topic, 0, max_wait_ms=2**31 - 1, min_bytes=2**31 - 1), 1, "polls")

    def waiting() -> float:
        return value(scrape(broker), "kafka_server_delayedoperationpurgatory_purgatorysize", delayedOperation="Fetch")

    before, most = waiting(), FETCHES_OF_CONNECTION_MAX
    with RawConnection(broker.bootstrap) as connection, RawConnection(broker.bootstrap) as other:
        connection.send(polls * (most + 5))
        for _ in range(5):  # the first ones are answered, with nothing, since others came
            connection.answer()
        assert waiting() == before + most
        other.send(polls)
        until(lambda: waiting() == before + most + 1)
        connection.socket.close()
        until(lambda: waiting() == before + 1)
        produce(broker.bootstrap, topic, [values(1)])  # too little for who waits
        assert waiting() == before + 1
    until(lambda: waiting() == before)


def test_a_partition_that_is_named_often_is_fetched_once(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(1)])
    one = struct.pack(">iqi", 0, 0, 1 << 20)
    asked = struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", 1_000) + one * 1_000
    with RawConnection(broker.bootstrap) as connection:
        connection.send(framed(head(1, 4) + struct.pack(">iiiibi", -1, 0, 1, 1 << 20, 0, 1) + asked))
        assert len(connection.answer()) < 1_000


async def test_groups_their_members_and_what_they_commit(broker: RunningBroker, topic: str) -> None:
    await asyncio.to_thread(create, broker.bootstrap, topic, 3)
    group = f"counted-{topic}"
    states, metrics = "kafka_coordinator_group_groupmetadatamanager_numgroups", "kafka_server_groupcoordinatormetrics_"
    names = [
        *(states, f"{states}preparingrebalance", f"{states}completingrebalance", f"{states}stable", f"{states}empty"),
        *("klog_group_members", "klog_group_committimems_count"),
        *(f"{metrics}group_completed_rebalance_total", f"{metrics}offset_commit_total"),
    ]
    before = scrape(broker)

    def rise() -> list[float]:
        found = scrape(broker)
        return [value(found, name) - value(before, name) for name in names]

    async with speakers(broker.bootstrap, group, 1) as (member,):
        await member.join(subscription(topic))
        assert await asyncio.to_thread(rise) == [1, 0, 1, 0, 0, 1, 0, 0, 0]
        await member.sync({member.member_id: assignment(topic, 0, 1, 2)})
        assert await asyncio.to_thread(rise) == [1, 0, 0, 1, 0, 1, 0, 1, 0]
        assert await member.commit({TopicPartition(topic, one): 7 for one in range(3)}) == [0, 0, 0]
        member.generation += 1
        assert await member.commit({TopicPartition(topic, 0): 8}) == [ILLEGAL_GENERATION]
        assert await asyncio.to_thread(rise) == [1, 0, 0, 1, 0, 1, 1, 1, 3]
        await member.leave()
        assert await asyncio.to_thread(rise) == [1, 0, 0, 0, 1, 0, 1, 1, 3]
    found = scrape(broker)
    assert value(found, "klog_group_slots") == 64
    assert 0 < value(found, "klog_group_committimems", quantile="0.5") < 10_000


def test_the_port_that_is_taken_is_named(make_broker: Callable[..., RunningBroker]) -> None:
    """At the host of its own."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.3", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = make_broker(metrics__port=str(port), klog__http__host="127.0.0.3").start(expect_ready=False)
        assert broker.process is not None
        assert broker.process.wait(20) == 1
        assert broker.logged("metrics", f"127.0.0.3:{port}", "in use")


def test_a_stopped_broker_lets_go_of_the_port_and_is_not_held_by_a_silent_peer(
    make_broker: Callable[..., RunningBroker],
) -> None:
    port = free_port()
    broker = make_broker(metrics__port=str(port)).start()
    with socket.create_connection(("127.0.0.1", port)) as silent:
        silent.sendall(b"GET /metr")
        assert value(scrape(broker), "kafka_controller_kafkacontroller_activecontrollercount") == 1
        assert broker.stop() == 0
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        scrape(broker)


def test_bytes_that_are_no_http_harm_nobody(broker: RunningBroker) -> None:
    for garbage in (b"\x00\x00\x00\x10" * 100, b"POST /metrics HTTP/1.1\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n"):
        with socket.create_connection(("127.0.0.1", int(broker.settings["metrics__port"]))) as sock:
            sock.sendall(garbage)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
    assert value(scrape(broker), "kafka_controller_kafkacontroller_activecontrollercount") == 1


def test_without_a_port_nothing_of_it_is_loaded() -> None:
    program = (
        "import sys, klog.server.broker; "
        "sys.exit(any(name.split('.')[0] in ('prometheus_client', 'wsgiref') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


# --- what counts ------------------------------------------------------------------------------------------------------


def test_quantiles_are_of_what_was_measured() -> None:
    timing = Timing()
    for ms in range(1, 101):
        timing.took(float(ms))
    times = times_of([timing])
    assert times.measured == 100
    assert times.total_ms == 5050
    assert dict(times.quantiles) == {0.5: 50.0, 0.95: 95.0, 0.99: 99.0, 0.999: 100.0}


def test_quantiles_forget_and_counts_do_not() -> None:
    timing = Timing()
    for _ in range(1000):
        timing.took(1000.0)
    for _ in range(RECENT_MAX):
        timing.took(1.0)
    times = times_of([timing])
    assert times.measured == 1000 + RECENT_MAX
    assert {ms for _, ms in times.quantiles} == {1.0}


def test_nothing_measured_has_no_quantiles() -> None:
    assert times_of([Timing()]) == (0, 0.0, ())
    assert times_of([]) == (0, 0.0, ())


def test_of_many_requests_few_are_timed_and_of_few_all() -> None:
    meter = RequestMeter()
    timed = []
    for _ in range(10 * SAMPLE_ONE_IN):
        meter.count += 1
        if meter.count >= meter.timed_from:
            timed.append(meter.count)
            meter.choose_next()
    assert timed[:SAMPLE_ONE_IN] == list(range(1, SAMPLE_ONE_IN + 1))
    assert len(timed) == SAMPLE_ONE_IN + 9


def test_a_total_never_falls_when_topics_go() -> None:
    traffic = Traffic()
    traffic.of("kept").messages_in += 3
    traffic.of("gone").messages_in += 4
    traffic.refused("unknown").failed_fetches += 1
    traffic.keep_only({"kept"})
    assert set(traffic.topics) == {"kept"}
    assert traffic.total().messages_in == 7
    assert traffic.total().failed_fetches == 1
    traffic.of("gone").messages_in += 1
    assert traffic.topics["gone"].messages_in == 1
    assert traffic.total().messages_in == 8
