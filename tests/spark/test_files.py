"""The formats: what is written is read again, value for value, by klog and by who else reads such files."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import CorruptLog, Refused
from klog.export.files import FORMATS, avro, format_named, format_of
from klog.export.files.avro_encoding import encode_rows, varint
from klog.export.message_columns import SCHEMA
from klog.render.jsonl import from_line

COUNTED = ["topic", "partition", "offset", "timestamp"]


def some_rows(count: int) -> list[dict[str, Any]]:
    """Messages of every kind, of several partitions; offsets ascend."""
    chance = random.Random(1)
    keys = [None, b"", b"k", b"\xff\x00", '"ü\u2028\x00\n'.encode()]
    values = [None, b"", b"x" * 300, b"text", b"\x80\x81" * 40, b'{"a": "\\u00fc"}']
    headers: list[list[dict[str, Any]]] = [
        [],
        [{"key": "a", "value": None}],
        [{"key": "ü", "value": b"\xff"}, {"key": "", "value": b""}, {"key": "ü", "value": b"x" * 200}],
    ]
    return [
        {
            "key": chance.choice(keys),
            "value": chance.choice(values),
            "topic": f"t{chance.randrange(2)}",
            "partition": chance.randrange(3),
            "offset": number * 10 ** chance.randrange(3) + 1000 * number,
            "timestamp": chance.choice([0, -1000, 1_763_757_600_123_000, 7_258_118_400_000_000]),
            "timestampType": number % 2,
            "headers": chance.choice(headers),
        }
        for number in range(count)
    ]


def batch_of(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)


def written(name: str, batches: Sequence[pa.RecordBatch], **options: Any) -> bytes:
    sink = io.BytesIO()
    writer = format_named(name).Writer(sink, batches[0].schema, **options)
    for batch in batches:
        writer.write(batch)
    writer.close()
    return sink.getvalue()


def read(name: str, data: bytes, columns: Sequence[str] | None = None, *, thorough: bool = False) -> list[Any]:
    return [
        row
        for batch in format_named(name).read(io.BytesIO(data), columns, thorough=thorough)
        for row in batch.to_pylist()
    ]


def plain(rows: Sequence[dict[str, Any]], columns: Sequence[str] = tuple(SCHEMA.names)) -> list[Any]:
    found: list[Any] = batch_of(rows).select(list(columns)).to_pylist()
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_is_read(name: str) -> None:
    rows = some_rows(700)
    data = written(name, [batch_of(rows[:500]), batch_of(rows[500:])])
    assert read(name, data) == plain(rows)
    assert read(name, data, thorough=True) == plain(rows)


@pytest.mark.parametrize("name", FORMATS)
def test_only_the_columns_that_are_asked_for_are_read(name: str) -> None:
    rows = some_rows(300)
    data = written(name, [batch_of(rows)])
    for columns in (COUNTED, [*COUNTED, "key", "value"], ["value"], ["offset", "headers"]):
        (first, *_) = format_named(name).read(io.BytesIO(data), columns)
        assert first.schema.names == columns
        assert read(name, data, columns) == plain(rows, columns), columns
        assert read(name, data, [*columns, "unknown"], thorough=True) == plain(rows, columns), columns


@pytest.mark.parametrize("name", FORMATS)
def test_a_slice_of_a_batch_is_written_as_its_rows(name: str) -> None:
    rows = some_rows(200)
    assert read(name, written(name, [batch_of(rows).slice(30, 50)])) == plain(rows[30:80])


@pytest.mark.parametrize("name", FORMATS)
def test_big_values_are_written(name: str) -> None:
    rows = some_rows(5)
    rows[2]["value"] = random.Random(1).randbytes(3_000_000)
    rows[3]["value"] = b"y" * 3_000_000
    data = written(name, [batch_of(rows)])
    assert read(name, data) == plain(rows)
    assert read(name, data, COUNTED) == plain(rows, COUNTED)


def test_avro_is_read_by_fastavro() -> None:
    rows = some_rows(3000)
    found = list(fastavro.reader(io.BytesIO(written("avro", [batch_of(rows)]))))
    assert found == plain(rows)


def test_avro_of_others_is_read() -> None:
    header = {"type": "record", "name": "h", "fields": [_union("key", "string"), _union("value", "bytes")]}
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    fields = [
        _union("offset", "long"),
        _union("headers", {"type": "array", "items": ["null", header]}),
        _union("topic", "string"),
        _union("key", "bytes"),
        {"name": "value", "type": ["bytes", "null"]},
        _union("partition", "int"),
        _union("timestamp", micros),
        _union("timestampType", "int"),
    ]
    rows = some_rows(500)
    sink = io.BytesIO()
    schema = fastavro.parse_schema({"type": "record", "name": "theirs", "fields": fields})
    fastavro.writer(sink, schema, plain(rows), codec="snappy", sync_interval=3000)
    for columns in (COUNTED, None):
        found = read("avro", sink.getvalue(), columns)
        assert [{name: row[name] for name in columns or SCHEMA.names} for row in found] == plain(
            rows, columns or SCHEMA.names
        )


def test_an_avro_block_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = io.BytesIO()
    schema = {"type": "record", "name": "theirs", "fields": [{"name": "value", "type": "bytes"}]}
    fastavro.writer(sink, schema, [{"value": bytes(1000)}] * 50, codec="snappy")
    for bound, ends in ((100_000, True), (10_000, False)):
        monkeypatch.setattr(avro, "UNPACKED_BYTES_MAX", bound)
        if ends:
            assert len(read("avro", sink.getvalue())) == 50
        else:
            with pytest.raises(CorruptLog, match=r"block.*10000 bytes"):
                read("avro", sink.getvalue())


def _union(name: str, type_: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", type_], "default": None}


def test_typed_columns_are_written_as_avro() -> None:
    columns: dict[str, pa.Array] = {
        "topic": pa.array(["t", "t", "t"]),
        "schema_id": pa.array([1, None, 7], pa.int32()),
        "record": pa.array(
            [
                {"a": 1, "b": 0.5, "c": [1, None], "d": {"k": 2, "": None}, "e": True, "f": "x", "g": {"h": b"1"}},
                None,
                {"a": -(2**63), "b": None, "c": [], "d": None, "e": None, "f": None, "g": None},
            ],
            pa.struct(
                [
                    ("a", pa.int64()),
                    ("b", pa.float64()),
                    ("c", pa.list_(pa.int32())),
                    ("d", pa.map_(pa.string(), pa.int64())),
                    ("e", pa.bool_()),
                    ("f", pa.string()),
                    ("g", pa.struct([("h", pa.binary())])),
                ]
            ),
        ),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    data = written("avro", [batch])
    found = [json.loads(json.dumps(row, default=repr)) for row in fastavro.reader(io.BytesIO(data))]
    assert [row["schema_id"] for row in found] == [1, None, 7]
    assert found[1]["record"] is None
    first = found[0]["record"]
    assert (first["a"], first["b"], first["c"], first["d"]) == (1, 0.5, [1, None], {"k": 2, "": None})
    assert (first["e"], first["f"], first["g"]) == (True, "x", {"h": "b'1'"})
    assert found[2]["record"] == {"a": -(2**63), "b": None, "c": [], "d": None, "e": None, "f": None, "g": None}
    assert [row["topic"] for row in read("avro", data)] == ["t"] * 3


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50))
def test_numbers_are_avros(values: list[int]) -> None:
    batch = pa.RecordBatch.from_pydict({"offset": pa.array(values, pa.int64())})
    schema = fastavro.parse_schema("long")
    for value, found in zip(values, encode_rows(batch).to_pylist(), strict=True):
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, schema, value)
        assert found == sink.getvalue() == varint(value)


def test_json_lines_are_those_of_tail() -> None:
    rows = some_rows(200)
    lines = gzip.decompress(written("json", [batch_of(rows)])).splitlines()
    for line, row in zip(lines, plain(rows), strict=True):
        content = from_line(line)
        assert (content.key, content.value) == (row["key"], row["value"])
        assert content.headers == [(one["key"], one["value"]) for one in row["headers"]]
        assert json.loads(line)["offset"] == row["offset"]


def test_times_beyond_the_years_that_dates_have() -> None:
    far = 2**63 - 1 - (2**63 - 1) % 1000
    rows = [{**some_rows(1)[0], "timestamp": 0}]
    batch = batch_of(rows)
    batch = batch.set_column(5, SCHEMA.field(5), pa.array([far], pa.int64()).cast(pa.timestamp("us", "UTC")))
    for name in FORMATS:
        (found,) = format_named(name).read(io.BytesIO(written(name, [batch])), ["timestamp"])
        value = found.column(0).cast(pa.int64())[0].as_py()
        assert value == (far if name != "orc" else (2**63 - 1) // 1000)  # ORC's are nanoseconds to Arrow


@pytest.mark.parametrize("name", ["parquet", "orc"])
def test_row_groups_are_bounded_by_bytes(name: str) -> None:
    rows = some_rows(3000)
    batches = [batch_of(rows[at : at + 100]) for at in range(0, 3000, 100)]
    data = pa.BufferReader(written(name, batches, group_bytes=20_000))
    if name == "parquet":
        assert pq.ParquetFile(data).metadata.num_row_groups > 3
    else:
        assert orc.ORCFile(data).nrows == 3000


def damages(data: bytes) -> Iterator[bytes]:
    yield b""
    yield data[: len(data) // 2]
    yield data[:-1]
    yield b"x" * 100
    yield data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 0x10]) + data[len(data) // 2 + 1 :]


@pytest.mark.parametrize("name", ["parquet", "avro", "json"])
def test_a_damaged_file_is_corrupt_or_the_same(name: str) -> None:
    rows = some_rows(400)
    for damaged in damages(written(name, [batch_of(rows)])):
        for columns in (COUNTED, None):
            try:
                found = read(name, damaged, columns, thorough=True)
            except CorruptLog:
                continue
            assert not damaged or found == plain(rows, columns or SCHEMA.names)


@pytest.mark.parametrize("name", ["parquet", "avro"])
def test_a_file_of_something_else_has_none_of_the_columns(name: str) -> None:
    others = pa.RecordBatch.from_pydict({"other": pa.array([1, 2], pa.int64())})
    assert not any(read(name, written(name, [others]), ["key", "offset"]))


def test_a_text_that_is_none_any_more_is_corrupt() -> None:
    """Nothing in ORC sums the bytes up, so a changed one is met as it is: in a value, in a column's name."""
    rows = [{**row, "topic": "wxyz"} for row in some_rows(3)]
    data = written("orc", [batch_of(rows)])
    with pytest.raises(CorruptLog):
        read("orc", data.replace(b"wxyz", b"wx\xffz"), COUNTED)
    for at in range(0, len(data), 5):
        damaged = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        try:
            read("orc", damaged, COUNTED, thorough=True)
        except CorruptLog:
            pass


@pytest.mark.parametrize("name", FORMATS)
def test_a_cut_file_is_corrupt(name: str) -> None:
    data = written(name, [batch_of(some_rows(400))])
    with pytest.raises(CorruptLog):
        read(name, data[: len(data) - 40], COUNTED)


def test_formats_are_known_by_name_and_by_files() -> None:
    for name in FORMATS:
        kind = format_named(name)
        assert format_of(f"a/part-0{kind.SUFFIX}") is kind
    for path in ("a/_SUCCESS", "a/.part-0.parquet.crc", "a/_klog_manifest.json", "a/.part-0.json", "x"):
        assert format_of(path) is None
    with pytest.raises(Refused, match="csv"):
        format_named("csv")


def test_a_full_disk_is_an_error() -> None:
    batch = batch_of(some_rows(5000))
    for name in FORMATS:
        with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError):
            writer = format_named(name).Writer(full, SCHEMA)
            writer.write(batch)
            writer.close()


def test_offsets_are_packed_and_have_statistics() -> None:
    rows = [{"topic": "t", "partition": 0, "offset": 64 * number, "timestamp": number} for number in range(10_000)]
    data = written("parquet", [pa.RecordBatch.from_pylist(rows, schema=SCHEMA)])
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in columns["offset"].encodings
    assert columns["offset"].total_compressed_size < 1000
    assert (columns["offset"].statistics.min, columns["offset"].statistics.max) == (0, 639_936)
    assert columns["timestamp"].statistics.max.microsecond == 9_999
