"""The connector's options: what is read, and what is refused with the option's name in the message."""

from __future__ import annotations

import socket
import threading
from functools import partial

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from klog.client.positions import EARLIEST, LATEST
from klog.client.raw_fetch import Range, RawCluster
from klog.errors import CannotConnect, UsageError
from klog.names import TopicPartition
from klog.spark.option_table import check_names, unknown, without_effect
from klog.spark.options import COLUMNS, Bound, SourceOptions
from klog.spark.planning import plan
from klog.spark.source import KlogDataSource
from klog.spark.stream import KlogStreamReader
from tests.spark.refusals import not_refused

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


def test_what_programs_for_the_connector_carry_is_taken_and_what_is_ignored_is_named() -> None:
    given = {
        **BASE,
        "kafkaConsumer.pollTimeoutMs": "1500",
        "fetchOffset.numRetries": "0",
        "fetchOffset.retryIntervalMs": "10",
        "GROUPIDPREFIX": "nightly",
        "kafka.group.id": "g",
        "kafka.client.id": "reports",
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.max.poll.records": "500",
        "checkpointLocation": "/c",
    }
    assert unknown(given) == []
    found = SourceOptions.parse(given)
    assert (found.timeout_s, found.task_timeout_s, found.client_id) == (10, 1.5, "reports")
    assert (found.offset_retries, found.offset_pause_s) == (0, 0.01)
    assert without_effect(given, streaming=False) == ["groupIdPrefix", "kafka.group.id", "kafka.max.poll.records"]


def test_options_of_streams_and_unknown_ones_do_nothing_in_a_batch_and_are_named() -> None:
    given = {
        **BASE,
        "maxOffsetsPerTrigger": "0",
        "MAXtriggerdelay": "soon",
        "startingOfset": "7",
    }
    assert SourceOptions.parse(given) == SourceOptions.parse(BASE)
    assert without_effect(given, streaming=False) == [
        '"startingOfset" (is "startingOffsets" meant?)',
        *("maxOffsetsPerTrigger", "maxTriggerDelay"),
    ]
    assert without_effect({**BASE, "maxOffsetsPerTrigger": "1"}, streaming=True) == []


def test_a_broker_hears_the_client_id() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        options = SourceOptions.parse(
            {
                "bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}",
                "subscribe": "a",
                "kafka.client.id": "reports",
            }
        )

        def answer() -> None:
            connection = server.accept()[0]
            with connection:
                heard.append(connection.recv(200))

        heard: list[bytes] = []
        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(CannotConnect):
            options.connect()
        thread.join()
    assert b"reports" in heard[0]


def test_offsets_are_asked_for_as_often_as_the_option_says(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def connect(options: SourceOptions, **_: bool) -> RawCluster:
        tries.append(options.bootstrap)
        raise CannotConnect("refused")

    monkeypatch.setattr(SourceOptions, "connect", connect)
    for more, wanted in (({}, 1), ({"fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "1"}, 3)):
        given = {**BASE, **more}
        with pytest.raises(CannotConnect):
            plan(SourceOptions.parse(given))
        assert len(tries) == wanted
        tries.clear()
        with pytest.raises(CannotConnect):
            KlogStreamReader(SourceOptions.parse(given, streaming=True)).latestOffset({}, ReadAllAvailable())
        assert len(tries) == wanted
        tries.clear()


def test_a_time_before_all_others() -> None:
    given = {
        **BASE,
        "startingTimestamp": "0",
        "startingOffsetsByTimestamp": '{"a": {"0": 7}}',
        "startingOffsets": '{"a": {"0": 23}}',
    }
    assert SourceOptions.parse(given).starting == Bound(0, {}, by_time=True)
    del given["startingTimestamp"]
    assert SourceOptions.parse(given).starting == Bound(EARLIEST, {TopicPartition("a", 0): 7}, by_time=True)
    del given["startingOffsetsByTimestamp"]
    assert SourceOptions.parse(given).starting == Bound(EARLIEST, {TopicPartition("a", 0): 23})


def test_a_streams_own() -> None:
    found = SourceOptions.parse(BASE, streaming=True)
    assert found.starting == Bound(LATEST, {})
    assert (found.max_per_trigger, found.min_per_trigger, found.max_trigger_delay_ms) == (None, None, 900_000)
    found = SourceOptions.parse(
        {
            **BASE,
            "maxOffsetsPerTrigger": "100",
            "MINoffsetsPerTrigger": "10",
            "maxTriggerDelay": "2m",
            "batchBytes": "1000",
            "kafka.request.timeout.ms": "2500",
        },
        streaming=True,
    )
    assert (found.max_per_trigger, found.min_per_trigger, found.max_trigger_delay_ms) == (100, 10, 120_000)
    assert (found.batch_bytes, found.timeout_s) == (1000, 2.5)


def test_durations_as_spark_writes_them() -> None:
    texts = {"5": 5, "7ms": 7, "3s": 3000, "2 min": 120_000, "1H": 3_600_000}
    parsed = {text: SourceOptions.parse({**BASE, "maxTriggerDelay": text}, streaming=True) for text in texts}
    assert {text: found.max_trigger_delay_ms for text, found in parsed.items()} == texts


WRONG_IN_A_STREAM: tuple[tuple[dict[str, str], str], ...] = (
    ({"endingOffsets": "latest"}, "endingOffsets"),
    ({"endingTimestamp": "5"}, "endingTimestamp"),
    ({"ranges": "[]"}, "ranges"),
    ({"maxTriggerDelay": "soon"}, "maxTriggerDelay"),
    ({"maxTriggerDelay": "1 fortnight"}, "maxTriggerDelay"),
    ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
    ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "minOffsetsPerTrigger"),
)


def test_what_is_wrong_in_a_stream_is_named() -> None:
    parse = partial(SourceOptions.parse, streaming=True)
    assert not_refused((({**BASE, **one}, named) for one, named in WRONG_IN_A_STREAM), parse, UsageError) == []


def test_a_stream_s_options_that_are_wrong_are_named_when_it_is_asked() -> None:
    """Raised before, the error would be lost: Spark's runner then fails over a reader that it has not."""
    refused = KlogDataSource({**BASE, "startingOffsets": "noon"}).streamReader(StructType([]))
    for ask in (refused.initialOffset, lambda: refused.latestOffset({}, None), refused.getDefaultReadLimit):
        with pytest.raises(UsageError, match=r"startingOffsets.*noon"):
            ask()


def test_klog_read_refuses_a_misspelt_name_with_the_nearest() -> None:
    check_names({"STARTINGOFFSETS": "earliest", "kafka.whatever": "1", "checkpointLocation": "/c"})
    with pytest.raises(UsageError, match=r'"startingOfset".*"startingOffsets"'):
        check_names({**BASE, "startingOfset": "earliest"})


def test_ranges_say_everything() -> None:
    found = SourceOptions.parse({"bootstrap.servers": "h:1", "ranges": '[["a", 0, 5, 9]]'})
    assert found.ranges == (Range("a", 0, 5, 9),)


def test_a_pattern_means_what_java_takes_it_for() -> None:
    """Expected here is what `Pattern.matches` of a JVM answered."""
    names = ("clicks", "clicks-2", "Clicks", "orders.eu", "orders.us", "a_b", "a.b", "aaa", "E", "[a[", "a\\p")
    matches = {
        r"\Qa.b\E|\Qorders.\E.*": {"a.b", "orders.eu", "orders.us"},
        r"\Qa.b": {"a.b"},
        r"(?i)clicks(-\d)?": {"clicks", "clicks-2", "Clicks"},
        r"(?i:CL)icks|[\w.]{3}": {"clicks", "Clicks", "a_b", "a.b", "aaa"},
        r"orders\.(?!us)[a-z]++": {"orders.eu"},
        r"\Q[a[\E|a\\p": {"[a[", "a\\p"},
    }
    for text, found in matches.items():
        parsed = SourceOptions.parse({"bootstrap.servers": "h:1", "subscribePattern": text}).subscribe_pattern
        assert parsed is not None and {name for name in names if parsed.fullmatch(name)} == found, text


WRONG: tuple[tuple[dict[str, str], str], ...] = (
    ({"subscribe": "a"}, "bootstrap.servers"),
    ({"bootstrap.servers": "h:1"}, "subscribe"),
    ({**BASE, "assign": '{"a": [0]}'}, "assign"),
    ({"bootstrap.servers": "h:1", "assign": "a"}, "assign"),
    ({"bootstrap.servers": "h:1", "assign": "[1]"}, "assign"),
    *(
        ({"bootstrap.servers": "h:1", "subscribePattern": one}, "subscribePattern")
        for one in (
            *(
                "(",
                "[a",
                "\\",
                "[z-a]",
                r"\p{Lower}+",
                r"\PL",
                r"[a-z&&[^a-w]]",
                "[a[b]]",
                "[^a[b]]",
                r"x|\0141",
                r"a(?i)b",
            ),
            *(r"a(?i)b", r"\x{61}", r"\Gb", r"(?<same>a)\k<same>", "(?x)a [b c]", r"[\y]"),
        )
    ),
    ({**BASE, "startingOffsets": "latest"}, "startingOffsets"),
    ({**BASE, "endingOffsets": "earliest"}, "endingOffsets"),
    ({**BASE, "endingOffsets": '{"a": {"0": -2}}'}, "endingOffsets"),
    ({**BASE, "startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets"),
    ({**BASE, "startingOffsets": '{"a": {"0": 7, "1": -1}}'}, "startingOffsets.*-1 for a-1"),
    ({**BASE, "startingOffsets": '{"a": 3}'}, "startingOffsets"),
    ({**BASE, "startingOffsets": "now"}, "startingOffsets"),
    ({**BASE, "startingOffsetsByTimestampStrategy": "none"}, "startingOffsetsByTimestampStrategy"),
    ({**BASE, "failOnDataLoss": "maybe"}, "failOnDataLoss"),
    ({**BASE, "minPartitions": "0"}, "minPartitions"),
    ({**BASE, "maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition"),
    ({**BASE, "columns": "key,colour"}, "colour"),
    ({**BASE, "kafka.enable.auto.commit": "true"}, "enable.auto.commit"),
    ({**BASE, "kafka.auto.offset.reset": "latest"}, "auto.offset.reset"),
    ({**BASE, "kafka.value.deserializer": "x"}, "value.deserializer"),
    ({**BASE, "kafka.interceptor.classes": "x"}, "interceptor.classes"),
    ({**BASE, "kafka.security.protocol": "SASL_SSL"}, "security.protocol"),
    ({**BASE, "kafka.request.timeout.ms": "soon"}, "request.timeout.ms"),
    ({"bootstrap.servers": "h:1", "subscribe": " , "}, "subscribe"),
    ({"bootstrap.servers": "h:1", "assign": "{}"}, "assign"),
    ({**BASE, "batchBytes": "many"}, "batchBytes"),
    ({**BASE, "startingTimestamp": "yesterday"}, "startingTimestamp"),
    ({**BASE, "endingOffsetsByTimestamp": '{"a": {"0": -2}}'}, "endingOffsetsByTimestamp"),
    ({**BASE, "ranges": "[[1]]"}, "ranges"),
    ({**BASE, "ranges": '[["a", 0, 7, 6]]'}, "ranges"),
    ({**BASE, "ranges": '[["a", 0, -2, 6]]'}, "ranges"),
)


def test_what_is_wrong_is_named() -> None:
    assert not_refused(WRONG, SourceOptions.parse, UsageError) == []
