"""The connector's options: what is read, and what is refused with the option's name in the message."""

from __future__ import annotations

import pytest

from klog.client.raw_fetch import EARLIEST, LATEST, Range
from klog.errors import UsageError
from klog.names import TopicPartition
from klog.spark.options import COLUMNS, Bound, SourceOptions

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


def test_defaults_are_the_connectors() -> None:
    found = SourceOptions.parse(BASE)
    assert found.bootstrap == "h:1"
    assert found.subscribe == ("a",)
    assert (found.starting, found.ending) == (Bound(EARLIEST, {}), Bound(LATEST, {}))
    assert found.fail_on_data_loss
    assert found.columns == COLUMNS[:-1]


def test_names_do_not_care_about_case() -> None:
    found = SourceOptions.parse(
        {"BOOTSTRAP.servers": "h:1", "Subscribe": " a , b ", "INCLUDEHEADERS": "TRUE", "minpartitions": "7"}
    )
    assert found.subscribe == ("a", "b")
    assert found.columns == COLUMNS
    assert found.min_partitions == 7


def test_offsets_and_times() -> None:
    found = SourceOptions.parse(
        {**BASE, "startingOffsets": '{"a": {"0": 23, "1": -2}}', "endingOffsets": '{"a": {"0": -1}}'}
    )
    assert found.starting == Bound(EARLIEST, {TopicPartition("a", 0): 23, TopicPartition("a", 1): -2})
    assert found.ending == Bound(LATEST, {TopicPartition("a", 0): -1})
    by_time = SourceOptions.parse({**BASE, "startingTimestamp": "5", "startingOffsets": "earliest"})
    assert by_time.starting == Bound(5, {}, by_time=True)
    each = SourceOptions.parse({**BASE, "endingOffsetsByTimestamp": '{"a": {"3": 99}}'})
    assert each.ending == Bound(LATEST, {TopicPartition("a", 3): 99}, by_time=True)


def test_what_programs_for_the_connector_carry_is_accepted() -> None:
    SourceOptions.parse(
        {
            **BASE,
            "kafkaConsumer.pollTimeoutMs": "1",
            "fetchOffset.numRetries": "3",
            "kafka.security.protocol": "PLAINTEXT",
        }
    )


def test_ranges_say_everything() -> None:
    found = SourceOptions.parse({"bootstrap.servers": "h:1", "ranges": '[["a", 0, 5, 9]]'})
    assert found.ranges == (Range("a", 0, 5, 9),)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"subscribe": "a"}, "bootstrap.servers"),
        ({"bootstrap.servers": "h:1"}, "subscribe"),
        ({**BASE, "assign": '{"a": [0]}'}, "assign"),
        ({"bootstrap.servers": "h:1", "assign": "a"}, "assign"),
        ({"bootstrap.servers": "h:1", "assign": "[1]"}, "assign"),
        ({"bootstrap.servers": "h:1", "subscribePattern": "("}, "subscribePattern"),
        ({**BASE, "startingOffsets": "latest"}, "startingOffsets"),
        ({**BASE, "endingOffsets": "earliest"}, "endingOffsets"),
        ({**BASE, "endingOffsets": '{"a": {"0": -2}}'}, "endingOffsets"),
        ({**BASE, "startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets"),
        ({**BASE, "startingOffsets": '{"a": 3}'}, "startingOffsets"),
        ({**BASE, "startingOffsets": "now"}, "startingOffsets"),
        ({**BASE, "startingOffsetsByTimestampStrategy": "none"}, "startingOffsetsByTimestampStrategy"),
        ({**BASE, "failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({**BASE, "minPartitions": "0"}, "minPartitions"),
        ({**BASE, "maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition"),
        ({**BASE, "columns": "key,colour"}, "colour"),
        ({**BASE, "kafka.group.id": "g"}, "group.id"),
        ({**BASE, "ranges": "[[1]]"}, "ranges"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        SourceOptions.parse(options)
