"""`klog sql`: the rows are those of the whole topic, whatever the conditions keep from being read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from klog.errors import UsageError
from klog.spark.export import run_export
from klog.spark.narrowing import Bounds, readings_of
from klog.streams import question
from klog.streams.program import Input
from klog.streams.streams import Form, Streams
from tests.spark.conftest import NOW_MS, Message, NewTopic, TopicOnBroker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = 3
ROWS = 40


@pytest.fixture
def asked(spark: Any, new_topic: NewTopic) -> tuple[Streams, TopicOnBroker]:
    """A topic whose times go back and forth, from an hour ago until now."""
    topic = new_topic(PARTITIONS)
    for partition in range(PARTITIONS):
        topic.produce(
            [
                Message(b"k%d" % n, b'{"n": %d}' % n, (), NOW_MS - (n * 7919 % 3600) * 1000)
                for n in range(partition, ROWS, PARTITIONS)
            ],
            partition,
            batch=4,
        )
    return Streams(topic.bootstrap, spark), topic


def rows(streams: Streams, text: str, *inputs: Input, **exports: str) -> list[tuple[Any, ...]]:
    kind, found = question.ask(streams, text, inputs, exports)
    names = kind.__dataclass_fields__
    return sorted((tuple(getattr(one, name) for name in names) for one in found), key=repr)


@pytest.mark.long("test_forms_exports_and_what_is_wrong asks, too")
def test_conditions_narrow_what_is_read_and_never_what_is_found(asked: tuple[Streams, TopicOnBroker]) -> None:
    streams, topic = asked
    name = topic.name.replace("-", "_")
    half_an_hour_ago = datetime.fromtimestamp(NOW_MS / 1000 - 1800, UTC)
    moment = f"TIMESTAMP '{half_an_hour_ago:%Y-%m-%d %H:%M:%S}.{half_an_hour_ago.microsecond:06d}'"
    everything = rows(streams, f"SELECT partition, offset, timestamp, key FROM {name}")
    assert len(everything) == ROWS
    offsets = sorted(one[1] for one in everything if one[0] == 1)
    wanted: dict[str, tuple[Callable[[Any], bool], bool]] = {
        # condition -> (what it means, whether something need not be read)
        "partition = 1": (lambda one: one[0] == 1, True),
        f"partition = 1 AND offset > {offsets[2]} AND offset <= {offsets[9]}": (
            lambda one: one[0] == 1 and offsets[2] < one[1] <= offsets[9],
            True,
        ),
        f"timestamp >= {moment} AND key <> 'k7'": (lambda one: one[2] >= half_an_hour_ago and one[3] != "k7", True),
        f"timestamp < {moment}": (lambda one: one[2] < half_an_hour_ago, False),
        "partition = 1 OR key = 'k0'": (lambda one: one[0] == 1 or one[3] == "k0", False),
        "NOT (partition = 1)": (lambda one: one[0] != 1, False),
        "partition = 7": (lambda one: False, True),
        "timestamp > now() + INTERVAL 1 DAY": (lambda one: False, True),
    }
    for condition, (means, is_narrowed) in wanted.items():
        text = f"SELECT partition, offset, timestamp, key FROM {name} WHERE {condition}"
        assert rows(streams, text) == [one for one in everything if means(one)], condition
        streams.frame(topic.name, Form(text=True)).createOrReplaceTempView(name)
        readings = readings_of(streams.session.sql(text))
        assert (readings[topic.name].bounds != Bounds()) == is_narrowed, condition


def test_forms_exports_and_what_is_wrong(asked: tuple[Streams, TopicOnBroker], tmp_path: Path) -> None:
    streams, topic = asked
    name = topic.name.replace("-", "_")
    as_json = Input(topic.name, Form(json="n int"))
    asked = f"SELECT max(n) AS most, count(*) FROM {name}"  # a topic that is read twice is read whole
    found = rows(streams, f"{asked} WHERE partition = 0 UNION ALL {asked}", as_json)
    assert found == [(39, 14), (39, ROWS)]
    kind, _ = question.ask(streams, asked, [as_json], {})
    assert [field.metadata["name"] for field in kind.__dataclass_fields__.values()] == ["most", "count(1)"]
    run_export(topic.bootstrap, [topic.name], str(tmp_path / "root"))
    joined = f"SELECT count(*) FROM {name} t JOIN kept e ON t.partition = e.partition AND t.offset = e.offset"
    assert rows(streams, joined, kept=str(tmp_path / "root")) == [(ROWS,)]
    for text in ("SELECT * FROM not_there", "SELECT", f"SELECT nothing FROM {name}"):
        with pytest.raises(UsageError):
            rows(streams, text)


def test_values_are_shown_as_rows_of_any_command() -> None:
    assert question.shown(b"a\xff") == "a\\xff"
    assert question.shown([{"a": None}, (1, 2.5)]) == [{"a": None}, [1, 2.5]]
