"""`klog log dump --messages`: every message as a line, whatever was done to the files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from klog.client.positions import Position, parse_position
from klog.config.topic import LogConfig
from klog.errors import SessionLost, UsageError, ZooKeeperError
from klog.names import TopicPartition
from klog.record.avro_framing import PREFIX_BYTES
from klog.record.batch import CRC_AT, CRC_FROM
from klog.record.codec import Codec
from klog.record.records import Record, encode_batch
from klog.tools.log_messages import dump_messages
from klog.tools.log_survey import EVERYTHING, LogRange
from klog.tools.schemas import MessageDecoder
from tests.chance import seed_of
from tests.cli.runner import klog
from tests.tools.log_folders import FIRST_MS, ROWS, TOPIC_ID, Stored, fill, folder_of, opened, records_of

SCHEMA = '{"type":"record","name":"r","fields":[{"name":"a","type":"long"},{"name":"b","type":["null","string"]}]}'
FRAME = b"\0" + (7).to_bytes(PREFIX_BYTES - 1, "big")


def dumped(
    path: Path, within: LogRange = EVERYTHING, decoder: MessageDecoder | None = None
) -> tuple[list[dict[str, Any]], int]:
    """The messages, and how many notes tell of damage."""
    faults: list[bool] = []
    lines = list(dump_messages(path, within, lambda text, is_fault: faults.append(is_fault), decoder))
    assert all(line.endswith(b"\n") for line in lines)
    return [json.loads(line) for line in lines], sum(faults)


def between(log_dir: Path, begin: str | None, end: str | None) -> list[dict[str, Any]]:
    places: list[Position | None] = [None if one is None else parse_position(one) for one in (begin, end)]
    return dumped(log_dir, LogRange.of(*places))[0]


@pytest.fixture
def stored(tmp_path: Path) -> list[Stored]:
    return fill(tmp_path)


def test_all_messages_in_order(tmp_path: Path, stored: list[Stored]) -> None:
    found, faults = dumped(tmp_path)
    assert len(found) == sum(one.count for one in stored) and not faults
    assert [one["offset"] for one in found] == [one.address + number for one in stored for number in range(one.count)]
    wanted = [record for number, one in enumerate(stored) for record in records_of(number, one.count)]
    assert [one["value"].encode() for one in found] == [one.value for one in wanted]
    assert [one["key"].encode() for one in found] == [one.key for one in wanted]
    assert {(one["topic"], one["partition"]) for one in found} == {tuple(ROWS)}


def test_ranges(tmp_path: Path, stored: list[Stored]) -> None:
    everything = between(tmp_path, None, None)
    assert between(tmp_path, "start", "end") == everything
    for low, high in ((3, 17), (0, 1), (len(everything) - 2, len(everything) - 1)):
        first, last = everything[low]["offset"], everything[high]["offset"]
        assert between(tmp_path, str(first), str(last)) == everything[low:high]
        assert between(tmp_path, str(first), None) == everything[low:]
    times = [one["timestamp"] for one in everything]
    for low, high in ((3, 17), (5, 6), (0, len(everything) - 1)):
        assert between(tmp_path, f"@{times[low]}", f"@{times[high]}") == everything[times.index(times[low]) : high]
    assert between(tmp_path, f"@{FIRST_MS + 10**9}", None) == []
    assert between(tmp_path, None, f"@{FIRST_MS - 1}") == []
    for wrong in (("5", "5"), ("end", None), (None, "start"), ("-5", None), ("@5", "@4")):
        with pytest.raises(UsageError):
            between(tmp_path, *wrong)


def test_every_byte_flipped(tmp_path: Path) -> None:
    stored = fill(tmp_path, 3, segment_bytes=100_000)
    file = stored[0].file
    whole, clean = file.read_bytes(), between(tmp_path, None, None)
    offsets = {one["offset"]: one for one in clean}
    for place in range(0, len(whole), 3):
        harmed = bytearray(whole)
        harmed[place] ^= 0xFF
        file.write_bytes(harmed)
        found, faults = dumped(tmp_path)
        assert found == clean or faults, place  # a leader epoch is in no checksum
        assert len(found) >= len(clean) - max(one.count for one in stored), place
        assert all(offsets[one["offset"]] == one for one in found), place


def test_hostile_batches_whose_checksums_are_right(tmp_path: Path) -> None:
    """Places of a batch by each codec are changed, and the CRC made anew: what lies behind is always shown."""
    chance, decoder = random.Random(seed_of("hostile batches")), MessageDecoder("avro", lambda schema_id: SCHEMA)
    rows = [Record(number, FIRST_MS, b"k", FRAME + b"\x06\x02\x04hi", (("h", None),)) for number in range(2)]
    with opened(tmp_path) as held:
        log = held.log_or_create(ROWS, TOPIC_ID, LogConfig())
        ends = [log.append(memoryview(encode_batch(rows, codec=codec)), leader_epoch=0).end.address for codec in Codec]
        log.append(memoryview(encode_batch(rows)), leader_epoch=0)
    (file,) = folder_of(tmp_path).glob("*.log")
    whole = file.read_bytes()
    last = [one["offset"] for one in dumped(tmp_path)[0]][-2:]
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        for place in range(begin + CRC_FROM, end, 8):
            harmed = bytearray(whole)
            harmed[place] ^= chance.randrange(1, 256)
            harmed[begin + CRC_AT : begin + CRC_AT + 4] = crc32c(harmed[begin + CRC_FROM : end]).to_bytes(4, "big")
            file.write_bytes(harmed)
            found, _ = dumped(tmp_path, decoder=decoder)
            assert [one["offset"] for one in found][-2:] == last, place


def test_schemas_that_are_lost_are_no_damage(tmp_path: Path, stored: list[Stored]) -> None:
    def lost(schema_id: int) -> str:
        raise SessionLost("ZooKeeper is gone")

    with opened(tmp_path) as held:
        log = held.log_or_create(ROWS, TOPIC_ID, LogConfig())
        log.append(memoryview(encode_batch([Record(0, 0, None, FRAME)])), leader_epoch=9)
    with pytest.raises(SessionLost):
        dumped(tmp_path, decoder=MessageDecoder("avro", lost))

    def broken(schema_id: int) -> str:
        raise ZooKeeperError("ZooKeeper node /klog/schemas/ids/7 has no type")

    found, faults = dumped(tmp_path, decoder=MessageDecoder("avro", broken))
    assert not faults and "schemas/ids/7" in found[-1]["value_error"]


def test_hostile_messages(tmp_path: Path) -> None:
    with opened(tmp_path) as held:
        log = held.log_or_create(TopicPartition("t", 0), TOPIC_ID, LogConfig())
        batch = [
            Record(0, -1, None, None),
            Record(1, 2**62, b"\xff\x00", b"\x1b[2J\n", (("h", None), ("h", b"\xfe"))),
            Record(2, 0, b"", "\u2028\U0001f600".encode()),
        ]
        log.append(memoryview(encode_batch(batch)), leader_epoch=0)
    found, _ = dumped(tmp_path)
    assert [one["key"] for one in found] == [None, "/wA=", ""]
    assert found[1]["headers"][1] == {"key": "h", "value": "/g==", "encoding": "base64"}
    assert found[0]["timestamp"] is None and found[1]["timestamp"] == str(2**62)


def test_avro() -> None:
    schema_file = MessageDecoder("avro", lambda schema_id: SCHEMA)
    good = Record(0, 0, None, FRAME + b"\x06\x02\x04hi")
    assert schema_file.decoded(good) == {"value": {"a": 3, "b": "hi"}, "value_encoding": "avro", "value_schema_id": 7}
    for bad in (b"", b"plain", FRAME, FRAME + b"\x06\x04", FRAME + b"\x06\x00\x00"):
        assert list(schema_file.decoded(Record(0, 0, None, bad))) == ["value_error"]
    assert schema_file.decoded(Record(0, 0, None, None)) == {}
    by_key = MessageDecoder("avro:key", lambda schema_id: SCHEMA)
    assert by_key.decoded(good._replace(key=good.value))["key"] == {"a": 3, "b": "hi"}
    with pytest.raises(UsageError):
        MessageDecoder("protobuf", lambda schema_id: SCHEMA)


def test_by_the_command(tmp_path: Path, stored: list[Stored]) -> None:
    ran = klog("log", "dump", tmp_path, "--messages", "--from", stored[1].address, "--to", stored[2].address)
    assert ran.code == 0 and len(ran.stdout.splitlines()) == stored[1].count
    schema = tmp_path / "r.avsc"
    schema.write_text(SCHEMA)
    ran = klog("log", "dump", folder_of(tmp_path), "--messages", "--decode", "avro", "--schema", f"7={schema}")
    assert ran.code == 0 and '"value_error"' in ran.stdout
    with stored[0].file.open("r+b") as file:
        file.seek(stored[0].position + 70)
        file.write(b"\xff\xff")
    ran = klog("log", "dump", tmp_path, "--messages")
    assert ran.code == 1 and str(stored[0].file) in ran.stderr
    for wrong in (["--decode", "avro"], ["--messages", "--decode", "avro"], ["--messages", "-o", "table"]):
        assert klog("log", "dump", tmp_path, *wrong).code == 2
