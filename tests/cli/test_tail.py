"""`klog tail` as a script uses it: each flag, right and wrong; any bytes, in every form; groups; closed pipes."""

from __future__ import annotations

import base64
import json
import os
import signal
import time

import crc32c
import pytest
from confluent_kafka import Producer

from bench.wire import BATCH_HEADER, BATCH_PREFIX_BYTES, CRC_FROM, Connection
from klog.record.records import varint
from tests.broker_fixture import RunningBroker
from tests.cli.process import started
from tests.cli.runner import klog, written

NO_TEXT = b"\x00\xff\xfe\r\x1b\xc3("
CONTENTS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"key", b"text", [("h", b"v")]),
    (NO_TEXT, NO_TEXT, [("h", NO_TEXT), ("h", None), ("\u00f6", b"")]),
    (None, None, []),
    (b"", b"", []),
    ("\u00f6".encode(), '"\\\u2028\u0001'.encode(), []),
]


@pytest.fixture
def any_bytes(broker: RunningBroker, at: list[str], topic: str) -> str:
    """A topic of one partition that holds CONTENTS."""
    assert klog("topic", "create", topic, "-p", "1", "-X", "retention.ms=-1", *at).code == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for number, (key, value, headers) in enumerate(CONTENTS):
        producer.produce(topic, value, key, headers=headers or None, timestamp=1_769_940_000_000 + number)
    assert producer.flush(10) == 0
    return topic


def shown(*words: str) -> bytes:
    """What a run writes; its exit code is 0 and stderr empty."""
    code, out, err = written("tail", *words)
    assert (code, err) == (0, b"")
    return out


def in_a_process(*words: str) -> bytes:
    """The same, by a process of its own."""
    with started("tail", *words) as process:
        out, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, b"")
    return out


def test_bytes_that_are_no_text_in_every_form(at: list[str], any_bytes: str) -> None:
    every = [any_bytes, "-o", "start", "-e", *at]
    values = [value or b"" for _, value, _ in CONTENTS]
    assert shown(*every) == b"".join(value + b"\n" for value in values)
    form = r"%k|%s|%K|%S|%h{%k=%v,}|%v{hex}|%k{base64}|%T|%t-%p\0"
    expected = [
        b"|".join(
            [
                *(key or b"", value or b"", b"%d" % (-1 if key is None else len(key))),
                b"%d" % (-1 if value is None else len(value)),
                b"".join(name.encode() + b"=" + (content or b"") + b"," for name, content in headers),
                *((value or b"").hex().encode(), base64.b64encode(key or b"")),
                *(b"%d" % (1_769_940_000_000 + number), f"{any_bytes}-0".encode()),
            ]
        )
        for number, (key, value, headers) in enumerate(CONTENTS)
    ]
    assert shown(*every, "-f", form) == b"".join(line + b"\0" for line in expected)
    rows = [json.loads(line) for line in shown(*every, "--output", "jsonl").split(b"\n")[:-1]]
    for row, (key, value, headers) in zip(rows, CONTENTS, strict=True):
        assert [decoded(row, "key"), decoded(row, "value")] == [key, value]
        assert [(one["key"], decoded(one, "value", "encoding")) for one in row["headers"]] == headers
    assert [row["value_encoding"] for row in rows] == ["utf-8", "base64", None, "utf-8", "utf-8"]


def test_damage_is_told_and_not_shown(broker: RunningBroker, at: list[str], topic: str) -> None:
    """What lies in front of it is shown first, and is committed for a group."""
    assert klog("topic", "create", topic, "-p", "1", *at).code == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for value in (b"whole", b"to be damaged", b"behind"):
        producer.produce(topic, value)
        assert producer.flush(10) == 0
    (segment,) = broker.folder.glob(f"**/{topic}-0/*.log")
    place = segment.read_bytes().index(b"damaged")
    with segment.open("r+b") as file:
        file.seek(place)
        file.write(b"D")
    every = ["tail", topic, "-o", "start", "-e", *at]
    for more in ([], ["--replica", str(broker.broker_id)], ["-G", f"{topic}-group"], ["--merge", "time"]):
        ran = klog(*every, *more)
        assert (ran.code, ran.stdout) == (1, "whole\n"), ran
        assert "CRC" in ran.stderr and f"{topic}-0: " in ran.stderr and "klog log verify" in ran.stderr
    assert klog(*every, "-G", f"{topic}-group").stdout == "", "the first is committed"
    assert klog(*every, "-c", "1").code == 0
    assert klog(*every, "-X", "check.crcs=false").stdout == "whole\nto be Damaged\nbehind\n"


def test_names_of_headers_that_are_no_text(broker: RunningBroker, at: list[str], topic: str) -> None:
    """No client of ours sends them: a batch of two messages is made by hand, the second one's header is bytes."""
    assert klog("topic", "create", topic, "-p", "1", *at).code == 0
    records = b""
    for number, name in enumerate((b"good", b"b\xffd")):
        body = b"\0\0" + varint(number) + varint(-1) + varint(1) + b"v" + varint(1) + varint(len(name)) + name
        body += varint(1) + b"x"
        records += varint(len(body)) + body
    now_ms = int(time.time() * 1000)
    length = BATCH_HEADER.size - BATCH_PREFIX_BYTES + len(records)
    batch = bytearray(BATCH_HEADER.pack(0, length, -1, 2, 0, 0, 1, now_ms, now_ms, -1, -1, -1, 2) + records)
    batch[17:21] = crc32c.crc32c(memoryview(batch)[CRC_FROM:]).to_bytes(4, "big")
    with Connection(int(broker.bootstrap.split(":")[1])) as connection:
        connection.send(connection.produce_frame(topic, [(0, bytes(batch))]))
        connection.produce_answer()
    every = [topic, "-o", "start", "-e", *at]
    assert in_a_process(*every) == b"v\nv\n"
    assert in_a_process(*every, "-f", r"%h %H\n") == "good=x 1\nb\ufffdd=x 1\n".encode()
    rows = [json.loads(line) for line in in_a_process(*every, "--output", "jsonl").splitlines()]
    assert [row["headers"] for row in rows] == [
        [{"key": name, "value": "x", "encoding": "utf-8"}] for name in ("good", "b\ufffdd")
    ]


def decoded(row: dict[str, str | None], name: str, encoding: str | None = None) -> bytes | None:
    text, how = row[name], row[encoding or f"{name}_encoding"]
    if text is None:
        assert how is None
        return None
    return base64.b64decode(text) if how == "base64" else text.encode()


def test_searching_in_values_and_keys(at: list[str], any_bytes: str) -> None:
    def times(*words: str) -> str:
        ran = klog("tail", any_bytes, "-o", "start", "-f", "%T ", *words, *at)
        assert (ran.code, ran.stderr) == (0, "")
        return ran.stdout.replace("1769940000", "")

    assert times("-e", "--grep", r"\xff") == "001 "
    assert times("-e", "--grep-key", "\u00f6") == "004 "
    assert times("-e", "--grep-key", "e", "--grep", "x") == "000 "
    assert times("--grep", "t", "-c", "1") == "000 "
    assert times("-e", "--grep-header", "^h=v") == "000 "
    assert times("-e", "--match", f"{any_bytes}.+", "--grep-key", "!e") == "001 002 003 004 "


def test_time_order_over_partitions(broker: RunningBroker, at: list[str], topic: str) -> None:
    assert klog("topic", "create", topic, "-p", "3", "-X", "retention.ms=-1", *at).code == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for partition in range(3):  # in the order of arrival they are not that of time
        for number in range(partition, 30, 3):
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=10**12 + number)
        assert producer.flush(10) == 0
    in_order = [b"%d" % number for number in range(30)]
    assert shown(topic, "-o", "start", "-e", "--merge", "time", *at).split() == in_order
    assert shown(topic, "-o", "start", "--merge", "time", "-c", "12", *at).split() == in_order[:12]


def test_ctrl_c_while_nobody_takes_the_output_leaves_the_group(at: list[str], topic: str) -> None:
    assert klog("topic", "create", topic, "-p", "1", *at).code == 0
    lines = b"".join(b"%06d%s\n" % (number, b"x" * 500) for number in range(2000))
    assert klog("produce", topic, *at, input=lines).code == 0
    with started("tail", topic, "-G", topic, "-o", "start", *at) as process:
        assert process.stdout is not None and process.stderr is not None
        assert f" {topic}-0".encode() in process.stderr.readline()
        read = os.read(process.stdout.fileno(), 1000)  # the rest is more than a pipe holds
        assert read
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        members = klog("group", "describe", topic, "-o", "json", *at)
        assert members.code == 0 and members.rows == [], "it has left"
        while more := os.read(process.stdout.fileno(), 1 << 20):
            read += more
    rest = shown(topic, "-G", topic, "-e", "-q", *at)
    numbers = {int(line[:6]) for line in (read + rest).split(b"\n") if len(line) == 506}
    assert numbers == set(range(2000)), "nothing is left out"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_member_that_is_ended_leaves_its_group(at: list[str], topic: str, number: signal.Signals) -> None:
    assert klog("topic", "create", topic, "-p", "1", *at).code == 0
    with started("tail", topic, "-G", topic, "-o", "start", *at) as process:
        assert process.stderr is not None
        assert b"member" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(20) == 128 + number
    members = klog("group", "describe", topic, "-o", "json", *at)
    assert members.code == 0 and members.rows == [], "nobody waits for it"


def test_a_closed_pipe_ends_a_member_quietly(at: list[str], topic: str) -> None:
    assert klog("topic", "create", topic, "-p", "1", *at).code == 0
    assert klog("produce", topic, *at, input=b"a line\n" * 50_000).code == 0
    with started("tail", topic, "-G", topic, "-o", "start", "-q", *at) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"a line\n"
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""
    rest = shown(topic, "-G", topic, "-e", "-q", *at)
    assert 0 < rest.count(b"\n") <= 50_000


def test_what_everybody_types_tails(broker: RunningBroker, topic: str) -> None:
    """``tail -f TOPIC``: -f is kcat's format here."""
    assert klog("topic", "create", topic, "-B", broker.bootstrap).code == 0
    assert klog("topic", "create", f"{topic}-2", "-B", broker.bootstrap).code == 0
    for words, meant in (
        (["-e", "-f", topic], topic),
        ([topic, "-e", "-f"], topic),
        ([topic, "-f", "-e"], topic),
        (["-f", topic, f"{topic}-2", "-e"], f"{topic} {topic}-2"),
        ([f"{topic}-2", "-e", "-f", topic], f"{topic} {topic}-2"),
    ):
        ran = klog("tail", "-B", broker.bootstrap, *words)
        hint = ran.stderr.splitlines()
        assert ran.code == 0 and len(hint) == 1 and hint[0].endswith(f"`klog tail {meant}`"), ran
    assert klog("tail", "-e", topic, "-f", "- %s", "-B", broker.bootstrap).stderr == "", "a format"
    assert klog("tail", "-e", "-f", "-B", broker.bootstrap).code == 2, "no topic"
    ran = klog("tail", "-e", "--output", "json", "-B", broker.bootstrap)
    assert ran.code == 2
