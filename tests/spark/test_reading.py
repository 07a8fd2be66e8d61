"""`klog.read`: topics as Arrow in this process; what Polars and DuckDB make of them. No Spark is started."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest

import klog
from klog.errors import CannotConnect, OffsetOutOfRange, UnknownTopicOrPartition, UsageError
from klog.export.message_columns import SCHEMA
from tests.broker_fixture import ROOT
from tests.spark.conftest import NOW_MS, Message, NewTopic, make_messages


def test_each_message_is_there_once_in_polars_and_duckdb(new_topic: NewTopic) -> None:
    topic = new_topic(2)
    first = topic.produce(make_messages(300), 0, codec="zstd", batch=37)
    second = topic.produce([Message(b"k", b"v", (("h", b"1"), ("h", None))), Message(None, None), Message(b"", b"")], 1)
    given = {"bootstrap_servers": topic.bootstrap}
    reader = klog.read(topic.name, **given, includeHeaders=True)
    assert reader.schema == SCHEMA
    rows = reader.read_all().to_pylist()
    assert [(row["partition"], row["offset"]) for row in rows] == [(0, at) for at in first] + [(1, at) for at in second]
    assert [(row["key"], row["value"]) for row in rows[-3:]] == [(b"k", b"v"), (None, None), (b"", b"")]
    assert rows[-3]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}] and not rows[-1]["headers"]
    frame = pl.from_arrow(klog.read(topic.name, **given))
    assert isinstance(frame, pl.DataFrame) and frame["offset"].to_list() == first + second
    clicks = klog.read(topic.name, **given, columns="partition,offset", splitBytes=1000)
    found = duckdb.sql('SELECT partition, count(*), max("offset") FROM clicks GROUP BY ALL ORDER BY ALL').fetchall()
    assert found == [(0, 300, first[-1]), (1, 3, second[-1])] and clicks.schema.names == ["partition", "offset"]


def test_what_is_read_is_said_by_the_options_of_the_format(new_topic: NewTopic) -> None:
    topic = new_topic(2)
    times = [NOW_MS + 1000 * number for number in range(6)]
    offsets = topic.produce([Message(None, b"v", timestamp_ms=one) for one in times], 1, batch=4)

    def read(**options: object) -> list[int]:
        return klog.read(bootstrap_servers=topic.bootstrap, **options).read_all()["offset"].to_pylist()  # type: ignore[no-any-return]

    here = {"assign": {topic.name: [1]}}
    assert read(subscribe=topic.name) == offsets
    assert read(**here, startingOffsets={topic.name: {"1": offsets[4]}}) == offsets[4:]
    assert read(**here, startingTimestamp=times[3]) == offsets[3:]
    assert read(**here, endingOffsets={topic.name: {"1": offsets[2]}}) == offsets[:2]
    assert read(ranges=[[topic.name, 1, offsets[3], offsets[5]]]) == offsets[3:5]
    assert read(subscribe=new_topic().name) == []


def test_what_is_wrong_is_klogs_error(new_topic: NewTopic) -> None:
    topic = new_topic()
    kept = topic.produce(make_messages(30), batch=5)
    with pytest.raises(UsageError, match=r'"startOffsets".*"startingOffsets"'):
        klog.read(topic.name, bootstrap_servers=topic.bootstrap, startOffsets="earliest")
    with pytest.raises(UsageError, match="subscribe"):
        klog.read(bootstrap_servers=topic.bootstrap)
    with pytest.raises(UnknownTopicOrPartition):
        klog.read("no-such-topic", bootstrap_servers=topic.bootstrap)
    with pytest.raises(CannotConnect):
        klog.read(topic.name, bootstrap_servers="127.0.0.1:1")
    reader = klog.read(topic.name, bootstrap_servers=topic.bootstrap)
    topic.delete_before(kept[20])
    with pytest.raises(OffsetOutOfRange):
        reader.read_all()


def test_the_example_of_the_page_runs(new_topic: NewTopic, capsys: pytest.CaptureFixture[str]) -> None:
    topic = new_topic()
    topic.produce(make_messages(3))
    page = (ROOT / "docs/library.md").read_text("utf-8").partition("## Reading into Arrow")[2]
    code = page.partition("```python\n")[2].partition("```")[0]
    code = code.replace('"clicks"', f'"{topic.name}", bootstrap_servers="{topic.bootstrap}"')
    found: dict[str, object] = {}
    exec(compile(code, "library.md", "exec"), found)
    assert isinstance(found["frame"], pl.DataFrame) and len(found["frame"]) == 3
    assert "value 2" in capsys.readouterr().out
