"""Messages in and out over a real broker: nothing lost, nothing twice, and what is told about it."""

import asyncio
import io
import os
import random
import re
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka.partitioner.default import murmur2

from klog.admin import topics
from klog.client.cluster import Cluster
from klog.client.positions import Range, parse_range
from klog.config.units import Rate
from klog.errors import TimedOut, UnknownTopicOrPartition, UsageError
from klog.tools.options import ProduceOptions, TailOptions
from klog.tools.produce import Receipt, produce
from klog.tools.tail import tail
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.rows import each
from tests.tools.verbs import Arrivals, make_topic, read, run, send


def all_of() -> Range:
    return parse_range("start:end")


# --- In ---


@each(
    ("compression", "acks"),
    [*(("none", acks) for acks in ("0", "1", "all")), *((codec, "all") for codec in ("gzip", "snappy", "lz4", "zstd"))],
)
def test_lines_in_are_lines_out(broker: RunningBroker, topic: str, compression: str, acks: str) -> None:
    make_topic(broker.bootstrap, topic)
    lines = b"".join(b"line %d %s\n" % (i, b"x" * (i % 200)) for i in range(600))
    receipt = send(broker.bootstrap, topic, lines, compression=compression, acks=acks)
    assert (receipt.messages, receipt.failed, receipt.unanswered, receipt.is_complete) == (600, 0, 0, True)
    assert receipt.bytes == len(lines) - 600
    shown = b""
    while acks != "all" and shown.count(b"\n") < 600:  # nobody has said that they are committed
        shown, _ = read(broker.bootstrap, topic, offset=all_of())
    shown, _ = read(broker.bootstrap, topic, offset=all_of())
    assert shown == lines


def test_the_receipt_says_where_it_all_went(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 4)
    receipt = send(broker.bootstrap, topic, b"".join(b"k%d:v\n" % i for i in range(100)), key_delimiter=b":")
    assert sum(one.messages for one in receipt.partitions) == receipt.messages == 100
    assert receipt.bytes == 100 * 1 + sum(len(b"k%d" % i) for i in range(100))
    for one in receipt.partitions:
        assert one.first_offset is not None
        assert one.last_offset is not None
        assert one.flushed_by == (broker.broker_id,)
        shown, _ = read(
            broker.bootstrap,
            topic,
            partitions=(one.partition,),
            offset=parse_range(f"{one.first_offset}:{one.last_offset + 1}"),
        )
        assert shown.count(b"\n") == one.messages
    one_only = send(broker.bootstrap, topic, b"a\nb\n", partition=2)
    first = one_only.partitions[0].first_offset
    assert one_only.tail_line == f"klog tail {topic} -p 2 -o {first} -c 2"


def test_without_the_rule_to_flush_nobody_is_said_to_have_flushed(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, flush_messages=str(2**63 - 1))
    assert send(broker.bootstrap, topic, b"a\n").partitions[0].flushed_by is None
    make_topic(broker.bootstrap, f"{topic}-b")
    assert send(broker.bootstrap, f"{topic}-b", b"a\n", acks="1").partitions[0].flushed_by is None


def test_keys_go_where_javas_clients_put_them(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 7)
    keys = [b"user-%d" % i for i in range(60)]
    send(broker.bootstrap, topic, b"".join(key + b"=x\n" for key in keys), key_delimiter=b"=")
    shown, _ = read(broker.bootstrap, topic, offset=all_of(), format="%k %p\\n")
    found = dict(line.split() for line in shown.splitlines())
    assert {key: int(found[key]) for key in keys} == {key: (murmur2(key) & 0x7FFFFFFF) % 7 for key in keys}


def test_one_key_headers_nulls_and_raw_files(broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    make_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, b"a\n\n", key=b"k", headers=(("h", b"1"), ("h", None)), empty_is_null=True)
    (tmp_path / "raw").write_bytes(b"two\nlines\n")
    with (tmp_path / "raw").open("rb") as source:
        run(broker.bootstrap, lambda cluster: produce(cluster, topic, [source], ProduceOptions(input="raw")))
    shown, _ = read(broker.bootstrap, topic, offset=all_of(), format="%k|%K|%s|%S|%h\\n")
    assert shown == b"k|1|a|1|h=1,h=\nk|1||-1|h=1,h=\n|-1|two\nlines\n|10|\n"


def test_bad_lines_are_counted_and_named_and_the_others_go_in(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    receipt = send(broker.bootstrap, topic, b'{"value":"a"}\nnonsense\n\n{"value":"b"}\n{"v":1}\n', input="jsonl")
    assert (receipt.messages, receipt.failed, receipt.is_complete) == (2, 2, False)
    assert (receipt.first_error or "").startswith("input, line 2: ")
    assert read(broker.bootstrap, topic, offset=all_of())[0] == b"a\nb\n"


def test_input_that_breaks_off_loses_nothing_of_what_was_read(broker: RunningBroker, topic: str) -> None:
    class Breaking(io.BytesIO):
        name = "a disk that fails"

        def fileno(self) -> int:
            raise io.UnsupportedOperation

        def read(self, size: int | None = -1) -> bytes:
            chunk = super().read(4)
            if not chunk:
                raise OSError(5, "Input/output error")
            return chunk

    make_topic(broker.bootstrap, topic)
    sources = [Breaking(b"one\ntwo\n"), io.BytesIO(b"never\n")]
    receipt = run(broker.bootstrap, lambda cluster: produce(cluster, topic, sources, ProduceOptions()))
    assert (receipt.messages, receipt.failed, receipt.is_complete) == (2, 1, False)
    assert "Input/output error" in (receipt.first_error or "")
    assert read(broker.bootstrap, topic, offset=all_of())[0] == b"one\ntwo\n"


def test_the_line_that_shows_several_partitions_shows_what_was_sent(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 4)
    send(broker.bootstrap, topic, b"".join(b"k%d:old\n" % i for i in range(20)), key_delimiter=b":")
    receipt = send(broker.bootstrap, topic, b"".join(b"k%d:new\n" % i for i in range(20)), key_delimiter=b":")
    *_, name, flag, position, end = (receipt.tail_line or "").split()
    assert (name, flag, end) == (topic, "-o", "-e")
    shown, _ = read(broker.bootstrap, topic, offset=parse_range(position), until_end=True)
    assert shown == b"new\n" * 20


def test_a_message_that_is_too_large_fails_and_the_others_go_in(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, max_message_bytes="5000")
    receipt = send(broker.bootstrap, topic, b"a\n" + b"x" * 20_000 + b"\nb\n", batch_messages=1)
    assert (receipt.messages, receipt.failed) == (2, 1)
    assert {"20,000", "5,000", "max.message.bytes=N"} <= set(re.findall(r"[\w.,=]+\w", receipt.first_error or ""))
    assert read(broker.bootstrap, topic, offset=all_of())[0] == b"a\nb\n"


def test_a_missing_topic_is_refused_with_those_called_nearly_so(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    mistyped = f"{topic[:-2]}{topic[-1]}{topic[-2]}x"
    with pytest.raises(UnknownTopicOrPartition) as caught:
        send(broker.bootstrap, mistyped, b"a\n")
    assert caught.value.exit_code == 2
    assert topic in (caught.value.hint or "")
    assert f"--create makes {mistyped}" in (caught.value.hint or "")
    with pytest.raises(UnknownTopicOrPartition) as caught:
        read(broker.bootstrap, mistyped)
    assert topic in (caught.value.hint or "")


def test_a_missing_topic_is_made_on_purpose(make_broker: object, topic: str) -> None:
    """Also where brokers make none on being asked for one; what is there already is left as it is."""
    one: RunningBroker = make_broker(auto__create__topics__enable="false", num__partitions="2").start()  # type: ignore[operator]
    with pytest.raises(UnknownTopicOrPartition):
        send(one.bootstrap, topic, b"a\n")
    for number in range(2):
        assert send(one.bootstrap, topic, b"a\n", create=True).messages == 1
        assert read(one.bootstrap, topic, offset=all_of())[0] == b"a\n" * (number + 1)
    with pytest.raises(UnknownTopicOrPartition, match=r"2 partitions \(0 to 1\).* 5\b"):
        send(one.bootstrap, topic, b"a\n", partition=5)


def test_all_replicas_are_enough_where_more_are_asked_for_than_there_are(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, min_insync_replicas="2")
    receipt = send(broker.bootstrap, topic, b"a\n", librdkafka={"message.timeout.ms": "10000"})
    assert (receipt.messages, receipt.failed) == (1, 0), receipt


def test_flags_that_make_no_sense(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    with pytest.raises(UsageError, match="-k"):
        send(broker.bootstrap, topic, b"", key=b"k", key_delimiter=b":")
    with pytest.raises(UsageError, match="JSON"):
        send(broker.bootstrap, topic, b"", key=b"k", input="jsonl")
    with pytest.raises(UsageError, match=r"librdkafka.*no\.such\.thing"):
        send(broker.bootstrap, topic, b"", librdkafka={"no.such.thing": "1"})


def test_rates_are_kept(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    receipt = send(broker.bootstrap, topic, b"a\n" * 21, rate=Rate(50.0, "messages"))
    assert receipt.messages == 21
    assert receipt.ms >= 380, "twenty pauses of 20 ms"
    receipt = send(broker.bootstrap, topic, (b"x" * 1000 + b"\n") * 5, rate=Rate(10_000.0, "bytes"))
    assert receipt.ms >= 380, "four thousand bytes before the last message"


def test_what_was_acknowledged_is_told_on_interruption(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    read_end, write_end = os.pipe()
    told: list[Receipt] = []

    async def interrupted() -> None:
        async with await Cluster.connect(broker.bootstrap) as cluster:
            with os.fdopen(read_end, "rb") as source:
                work = asyncio.ensure_future(
                    produce(cluster, topic, [source], ProduceOptions(), interrupted=told.append)
                )
                while not work.done():
                    rows = await topics.list_topics(cluster, topic)
                    if rows[0].messages == 2:
                        break
                    await asyncio.sleep(0.01)
                work.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.wait_for(work, 1.0)

    os.write(write_end, b"one\ntwo\n")
    asyncio.run(interrupted())
    os.close(write_end)
    (receipt,) = told
    assert (receipt.messages, receipt.failed, receipt.unanswered, receipt.interrupted) == (2, 0, 0, True)
    assert receipt.partitions[0].first_offset == 0


def test_a_broker_that_is_killed_and_comes_back_loses_and_doubles_nothing(make_broker: object, topic: str) -> None:
    one: RunningBroker = make_broker().start()  # type: ignore[operator]
    make_topic(one.bootstrap, topic)
    read_end, write_end = os.pipe()
    receipts: list[Receipt] = []

    def produce_all() -> None:
        with os.fdopen(read_end, "rb") as source:
            receipts.append(
                run(one.bootstrap, lambda cluster: produce(cluster, topic, [source], ProduceOptions()), timeout_s=20)
            )

    def messages() -> int:
        (row,) = run(one.bootstrap, lambda cluster: topics.list_topics(cluster, topic))
        return row.messages or 0

    sending = threading.Thread(target=produce_all)
    sending.start()
    lines = [b"%06d\n" % i for i in range(4000)]
    with os.fdopen(write_end, "wb") as pipe:
        for at in range(0, len(lines), 1000):
            pipe.write(b"".join(lines[at : at + 1000]))
            pipe.flush()
            if at == 1000:
                while messages() < 1000:
                    pass
                one.kill()
                one.start()
    sending.join(60)
    assert not sending.is_alive()
    assert (receipts[0].messages, receipts[0].failed) == (4000, 0)
    assert read(one.bootstrap, topic, offset=all_of())[0] == b"".join(lines)


# --- Out ---


def filled(broker: RunningBroker, topic: str, partitions: int = 3, count: int = 60) -> list[bytes]:
    """Messages ``0``, ``1`` ... of rising time, spread over the partitions without any order."""
    make_topic(broker.bootstrap, topic, partitions, retention_ms="-1")
    spread = random.Random(3)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for i in range(count):
        producer.produce(topic, b"%d" % i, partition=spread.randrange(partitions), timestamp=10**12 + i)
    assert producer.flush(10) == 0
    return [b"%d" % i for i in range(count)]


def test_the_last_n_are_those_of_all_partitions_by_time(broker: RunningBroker, topic: str) -> None:
    messages = filled(broker, topic)
    for last in (1, 7, 59, 60, 1000):
        shown, notes = read(broker.bootstrap, topic, last=last, until_end=True)
        assert shown.split() == messages[-last:]
        assert notes == ([f"{60 - last} earlier: -o start"] if last < 60 else [])


@each(("last", "shown"), [(1, b"b3"), (3, b"a3 a4 b3"), (4, b"a2 a3 a4 b3"), (8, b"b1 b2 a1 a2 a3 a4 b3")])
def test_the_last_messages_of_a_partition_keep_its_order_where_their_times_are_out_of_it(
    broker: RunningBroker, topic: str, last: int, shown: bytes
) -> None:
    make_topic(broker.bootstrap, topic, 2, retention_ms="-1")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for partition, value, seconds in [
        *((0, "a1", 50), (0, "a2", 90), (0, "a3", 10), (0, "a4", 20)),
        *((1, "b1", 30), (1, "b2", 25), (1, "b3", 95)),
    ]:
        producer.produce(topic, value, partition=partition, timestamp=10**12 + seconds * 1000)
    assert producer.flush(10) == 0
    found, notes = read(broker.bootstrap, topic, last=last, until_end=True)
    assert found.split() == shown.split()
    assert notes == ([f"{7 - last} earlier: -o start"] if last < 7 else [])
    if last > 7:
        assert read(broker.bootstrap, topic, last=7, until_end=True, merge_by_time=True)[0] == found


def test_the_order_of_time_over_all_partitions(
    broker: RunningBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = filled(broker, topic, count=500)
    monkeypatch.setattr("klog.tools.time_merge.MEMORY_BYTES", 3 * 20 * 400)
    shown, _ = read(broker.bootstrap, topic, offset=all_of(), merge_by_time=True)
    assert shown.split() == messages


def test_chosen_partitions_counts_and_grep(broker: RunningBroker, topic: str) -> None:
    messages = filled(broker, topic)
    chosen = {
        partition: read(broker.bootstrap, topic, partitions=(partition,), offset=all_of())[0].split()
        for partition in range(3)
    }
    assert sorted((one for some in chosen.values() for one in some), key=int) == messages
    both, _ = read(broker.bootstrap, topic, partitions=(0, 2), offset=all_of())
    assert sorted(both.split()) == sorted(chosen[0] + chosen[2])
    five, _ = read(broker.bootstrap, topic, offset=parse_range("start"), count=5)
    assert len(five.split()) == 5
    found, _ = read(broker.bootstrap, topic, offset=all_of(), grep="^[12]0$")
    assert sorted(found.split()) == [b"10", b"20"]
    with pytest.raises(UsageError, match="regular expression"):
        read(broker.bootstrap, topic, grep="(")


def test_ranges_of_every_kind(broker: RunningBroker, topic: str) -> None:
    messages = filled(broker, topic, partitions=1, count=20)

    def shown(text: str) -> list[bytes]:
        return read(broker.bootstrap, topic, offset=parse_range(text))[0].split()

    assert shown("+5:+8") == messages[5:8]
    assert shown("-5:end") == messages[-5:]
    assert shown(f"@{10**12 + 3}:@{10**12 + 6}") == messages[3:6]
    assert shown("-3:-3") == []
    assert shown("end:end") == []


def test_an_offset_outside_the_log_is_told(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, b"a\n")
    shown, notes = read(broker.bootstrap, topic, offset=parse_range("9999:end"))
    assert shown == b"" and re.findall(rf"{topic}-0|\d+$|9999", "\n".join(notes)) == [f"{topic}-0", "9999", "1"]


def test_a_missing_topic_is_not_made_by_reading(broker: RunningBroker, topic: str) -> None:
    missing = klog("tail", topic, "-B", broker.bootstrap)
    assert missing.code == 1 and "waiting" not in missing.stderr
    make_topic(broker.bootstrap, f"{topic}-b")
    with pytest.raises(UnknownTopicOrPartition, match=r"\b1 partition.*partition 3"):
        read(broker.bootstrap, f"{topic}-b", partitions=(3,))
    assert [row.topic for row in run(broker.bootstrap, lambda c: topics.list_topics(c, f"{topic}*"))] == [f"{topic}-b"]


@each(
    ("options", "old"),
    [
        ({}, b""),
        ({"last": 1}, b"old 2\n"),
        ({"last": 0}, b""),
        ({"offset": parse_range("start")}, b"old 1\nold 2\n"),
        ({"offset": parse_range("start"), "merge_by_time": True}, b"old 1\nold 2\n"),
    ],
)
def test_following_what_comes(broker: RunningBroker, topic: str, options: dict[str, object], old: bytes) -> None:
    make_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, b"old 1\nold 2\n")

    async def follow() -> bytes:
        sink = Arrivals()
        async with await Cluster.connect(broker.bootstrap) as cluster:
            following = asyncio.ensure_future(
                tail(cluster, [topic], TailOptions(**options), sink)  # type: ignore[arg-type]
            )
            await sink.wait_for(old)
            producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
            arrival = asyncio.ensure_future(sink.wait_for(b"new\n"))
            # Where nothing old is shown, the first may come before tail has asked for the end: then another one is new.
            while not arrival.done():
                producer.produce(topic, b"new")
                await asyncio.to_thread(producer.flush, 5)
                await asyncio.wait([arrival, following], timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                assert not following.done()
            following.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(following, 1.0)
        return sink.getvalue()

    shown = asyncio.run(follow())
    assert shown.startswith(old)
    assert set(shown[len(old) :].splitlines()) == {b"new"}


def test_a_reader_that_is_gone_ends_it(broker: RunningBroker, topic: str) -> None:
    filled(broker, topic)
    read_end, write_end = os.pipe()
    os.close(read_end)

    async def into_nothing() -> None:
        async with await Cluster.connect(broker.bootstrap) as cluster:
            with os.fdopen(write_end, "wb", buffering=0) as sink:
                await tail(cluster, [topic], TailOptions(offset=all_of()), sink)

    with pytest.raises(BrokenPipeError):
        asyncio.run(into_nothing())


def test_a_bounded_read_does_not_wait_for_ever(make_broker: object, topic: str) -> None:
    one: RunningBroker = make_broker().start()  # type: ignore[operator]
    make_topic(one.bootstrap, topic)
    send(one.bootstrap, topic, b"a\n")

    async def with_the_broker_gone() -> None:
        from klog.tools import reader

        class Killing(reader.Reader):
            def run(self):  # type: ignore[no-untyped-def]
                one.kill()
                return super().run()

        async with await Cluster.connect(one.bootstrap, timeout_s=1.0) as cluster:
            original, reader.Reader = reader.Reader, Killing  # type: ignore[misc]
            try:
                await tail(cluster, [topic], TailOptions(offset=all_of()), io.BytesIO())
            finally:
                reader.Reader = original  # type: ignore[misc]

    with pytest.raises(TimedOut, match=f"{topic}-0"):
        asyncio.run(with_the_broker_gone())
