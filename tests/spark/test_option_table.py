"""The table of options: complete, as the connector's jar has them, and true where it says that both do the same.

One program runs with ``format("kafka")`` and ``format("klog")`` on the same topics, for each option that is `SAME`. The
frames of all options are joined into one query, since a query costs more than what it reads here.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from klog.errors import UsageError
from klog.spark import klog_errors
from klog.spark.option_table import BATCH, BOTH_REFUSE, OPTIONS, SAME, SESSION, STREAM, WRITE
from scripts.manual.spark_options_page import PATH, with_table
from tests.broker_fixture import ROOT
from tests.spark.conftest import NOW_MS, Message, NewTopic, TopicOnBroker

Programs = dict[str, dict[str, str]]

FORMATS = ("kafka", "klog")

NOT_DOCUMENTED = {"_mocksystemtime"}
"""Of the connector's own tests."""


def test_docs_have_the_table_that_the_code_has() -> None:
    page = (ROOT / PATH).read_text("utf-8")
    assert with_table(page) == page
    with pytest.raises(ValueError, match="missing"):
        with_table("# a page without the marks\n")


def test_each_name_stands_once_and_says_where() -> None:
    seen = [(one.name, place) for one in OPTIONS for place in one.where]
    assert len(seen) == len(set(seen))
    assert {place for _, place in seen} == {BATCH, STREAM, WRITE, SESSION}


class Topics:
    """Two topics whose messages have times, and one whose beginning is gone."""

    def __init__(self, new_topic: NewTopic) -> None:
        self.one, self.two, self.cut = new_topic(2), new_topic(), new_topic()
        self.times = [NOW_MS + 1000 * number for number in range(6)]
        self.offsets = self.one.produce(self._messages("a"), 0, batch=2)
        self.one.produce(self._messages("b"), 1)
        self.two.produce([Message(None, b"c", (("h", b"1"), ("h", None)))])
        kept = self.cut.produce(self._messages("d"))
        self.cut.delete_before(kept[4])

    def _messages(self, prefix: str) -> list[Message]:
        return [Message(b"k", f"{prefix}{n}".encode(), timestamp_ms=at) for n, at in enumerate(self.times)]

    def programs(self, where: str) -> Programs:
        """Each about several options: a query costs more than what it reads. Servers are added by `frame`."""
        name, middle, last = self.one.name, self.times[3], self.times[-1]
        batch = where == BATCH
        some = {name: {"0": self.offsets[2], "1": -2}, self.two.name: {"0": -2}}
        until = {name: {"0": self.offsets[4], "1": -1}, self.two.name: {"0": -1}}
        late = {name: {"0": middle, "1": last + 1}}
        return {
            "offsets": {
                "subscribe": f"{name}, {self.two.name}",
                "startingOffsets": json.dumps(some),
                "includeHeaders": "true",
                **({"endingOffsets": json.dumps(until)} if batch else {}),
            },
            "time": {
                "subscribePattern": rf"\Q{name[:-1]}\E[{name[-1]}]++",
                "startingTimestamp": str(middle),
                "minPartitions": "5",
                "kafka.client.id": "both",
                **({"endingTimestamp": str(last)} if batch else {}),
            },
            "times": {
                "assign": json.dumps({name: [0, 1]}),
                "startingOffsetsByTimestamp": json.dumps(late),
                "startingOffsetsByTimestampStrategy": "latest",
                **({"endingOffsetsByTimestamp": json.dumps({name: {"0": last, "1": last + 2}})} if batch else {}),
            },
            "loss": {
                "subscribe": self.cut.name,
                "startingOffsets": json.dumps({self.cut.name: {"0": 0}}),
                "failOnDataLoss": "false",
            },
        }

    def frame(self, session: Any, format: str, options: dict[str, str], *, streaming: bool = False) -> Any:
        given = {"kafka.bootstrap.servers": self.one.bootstrap, **options}
        return (session.readStream if streaming else session.read).format(format).options(**given).load()


@pytest.fixture(scope="module")
def topics(broker: Any) -> Topics:
    return Topics(lambda partitions=1: TopicOnBroker(broker.bootstrap, f"o-{secrets.token_hex(6)}", partitions))


def joined(topics: Topics, session: Any, format: str, programs: Programs, *, streaming: bool = False) -> Any:
    """The rows of all programs, each with its program's name, in columns that all have."""

    def shown(name: str, options: dict[str, str]) -> Any:
        frame = topics.frame(session, format, options, streaming=streaming)
        headers = sql.to_json("headers") if "headers" in frame.columns else sql.lit("no column")
        return frame.select(
            sql.lit(name).alias("program"), *frame.columns[:7], headers.alias("headers"), sql.lit(len(frame.columns))
        )

    return reduce(lambda left, right: left.union(right), (shown(*one) for one in programs.items()))


def same_in(where: str) -> set[str]:
    return {one.name for one in OPTIONS if one.beside == SAME and where in one.where}


def options_of(programs: Programs) -> set[str]:
    return {"kafka.bootstrap.servers"}.union(*programs.values())


def contents(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, rows), key=repr)


@pytest.mark.long("beside another's connector, query by query; test_spark_kafka.py has it once")
@pytest.mark.spark
@pytest.mark.timeout(600)
class TestBesideTheConnector:
    def test_the_table_has_every_option_of_its_jar(self, connected: Any) -> None:
        known = {one.name.lower() for one in OPTIONS}
        assert set(options_of_jar(connected)) - NOT_DOCUMENTED <= known
        assert len(known & set(options_of_jar(connected))) > 20

    def test_batch_queries_find_the_same(self, connected: Any, topics: Topics) -> None:
        programs = topics.programs(BATCH)
        assert options_of(programs) == same_in(BATCH)
        kafka, klog = (contents(joined(topics, connected, one, programs).collect()) for one in FORMATS)
        assert kafka == klog
        assert {row[0] for row in klog} == programs.keys()

    @pytest.mark.long("beside Spark's own connector; test_batch_queries_find_the_same does it for batches")
    def test_streams_find_the_same(self, connected: Any, topics: Topics, tmp_path: Path) -> None:
        programs = topics.programs(STREAM)
        assert options_of(programs) == same_in(STREAM)
        found = []
        for one in FORMATS:
            query = (
                joined(topics, connected, one, programs, streaming=True)
                .writeStream.format("memory")
                .queryName(f"of_{one}")
                .option("checkpointLocation", str(tmp_path / one))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            found.append(contents(connected.table(f"of_{one}").collect()))
        assert found[0] == found[1]
        assert {row[0] for row in found[1]} == programs.keys()

    def test_writing_leaves_the_same(self, connected: Any, new_topic: NewTopic) -> None:
        written = []
        for one in FORMATS:
            topic = new_topic(2)
            options = {
                "kafka.bootstrap.servers": topic.bootstrap,
                "topic": topic.name,
                "includeHeaders": "false",
                "kafka.client.id": "both",
            }
            assert options.keys() == same_in(WRITE)
            rows = connected.range(4).selectExpr(
                "'elsewhere' AS topic",
                "string(id) AS key",
                "if(id = 3, null, 'v' || id) AS value",
                "int(id % 2) AS partition",
                "array(named_struct('key', 'h', 'value', binary(string(id)))) AS headers",
            )
            rows.write.format(one).options(**options).mode("append").save()
            read = connected.read.format("klog").options(subscribe=topic.name, includeHeaders="true")
            found = read.option("bootstrap.servers", topic.bootstrap).load()
            written.append(contents(found.select("partition", "key", "value", sql.to_json("headers")).collect()))
        assert written[0] == written[1]
        assert len(written[0]) == 4

    def test_each_difference_of_the_page(self, connected: Any, new_topic: NewTopic, tmp_path: Path) -> None:
        assert list(DIFFERENCES) == rows_of_the_page()
        alike = {title: (program, given, given) for title, (program, given) in ALIKE.items()}
        for title, (program, with_kafka, with_klog) in {**DIFFERENCES, **alike}.items():
            found = []
            for one in FORMATS:
                topic = new_topic(2)
                topic.produce([Message(b"k", b"v")])
                folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
                found.append(done(program, Program(connected, one, topic, folder)))
            assert found == [with_kafka, with_klog], title

    def test_the_connector_refuses_what_both_refuse(self, connected: Any, topics: Topics) -> None:
        refused = [one.name for one in OPTIONS if one.beside == BOTH_REFUSE]
        assert len(refused) == 7
        for name in refused:
            writing = connected.range(1).selectExpr("string(id) AS value").write.format("kafka")
            with pytest.raises((PySparkException, Py4JError)):
                if name.endswith(".serializer"):
                    writing.options(**{"kafka.bootstrap.servers": topics.one.bootstrap, name: "x"}).save()
                else:
                    topics.frame(connected, "kafka", {"subscribe": topics.one.name, name: "x"})


REFUSED: Final = "refused"


class Program(NamedTuple):
    """What a program begins with: a session, the format's name, a topic of one message in two partitions, a folder."""

    session: Any
    format: str
    topic: TopicOnBroker
    folder: Path

    def read(self, **options: str) -> Any:
        return self._with(self.session.read, {"subscribe": self.topic.name, **options}).load()

    def messages(self) -> int:
        found: int = self._replace(format="klog").read().count()
        return found

    def write(self, rows: Any) -> Any:
        return self._with(rows.write, {"topic": self.topic.name})

    def stream(self, **trigger: Any) -> Any:
        """Counts by value, or with a trigger the messages, into the same topic."""
        given = {"subscribe": self.topic.name, "startingOffsets": "earliest"}
        frame = self._with(self.session.readStream, given).load()
        if not trigger:
            frame = frame.groupBy("value").count().select("value")
        writer = self._with(frame.select("value").writeStream, {"topic": self.topic.name})
        return writer.option("checkpointLocation", str(self.folder)).trigger(**(trigger or {"availableNow": True}))

    def _with(self, made: Any, options: dict[str, str]) -> Any:
        return made.format(self.format).options(**{"kafka.bootstrap.servers": self.topic.bootstrap, **options})


def with_mode(mode: str | None, program: Program) -> int:
    writer = program.write(program.session.range(3).selectExpr("string(id) AS value"))
    (writer if mode is None else writer.mode(mode)).save()
    return program.messages()


def streamed(mode: str, program: Program) -> int:
    with klog_errors():
        program.stream().outputMode(mode).start().awaitTermination()
    return program.messages()


def continuous(program: Program) -> int:
    query = program.stream(continuous="1 second").start()
    query.stop()
    return 1


def counted_again(program: Program) -> int:
    frame = program.read()
    assert frame.count() == 1
    program.topic.produce([Message(b"k", b"w")])
    found: int = frame.count()
    return found


def left_out(program: Program) -> int:
    found: int = program.read(startingOffsets=json.dumps({program.topic.name: {"1": -2}})).count()
    return found


DIFFERENCES: Final[dict[str, tuple[Callable[[Program], int], Any, Any]]] = {
    "`rows.write.format(...).save()` without a mode": (partial(with_mode, None), 4, REFUSED),
    '`rows.write.mode("error")`': (partial(with_mode, "error"), 4, REFUSED),
    '`writeStream.outputMode("update")`': (partial(streamed, "update"), 2, REFUSED),
    '`trigger(continuous="1 second")`': (continuous, 1, REFUSED),
    "`frame.count()` again, after new messages": (counted_again, 2, 1),
    "a JSON of offsets that leaves a partition out": (left_out, REFUSED, 1),
}
"""A row of docs/pipeline.md -> the program, and what it gives with the connector and with klog."""
ALIKE: Final[dict[str, tuple[Callable[[Program], int], Any]]] = {
    "append": (partial(with_mode, "append"), 4),
    "ignore": (partial(with_mode, "ignore"), REFUSED),
    "overwrite": (partial(with_mode, "overwrite"), REFUSED),
    "stream complete": (partial(streamed, "complete"), 2),
}
"""Other ways to write -> the program, and what it gives with either."""


def done(program: Callable[[Program], int], given: Program) -> Any:
    try:
        return program(given)
    except (PySparkException, Py4JError, UsageError) as error:
        is_update = isinstance(program, partial) and program.args == ("update",)
        lines = str(getattr(error, "hint", None) or error).splitlines()
        assert not is_update or given.format == "kafka" or sum("foreachBatch" in one for one in lines[-3:]) == 1
        return REFUSED


def rows_of_the_page() -> list[str]:
    table = (ROOT / PATH).read_text("utf-8").partition("| a program | with the connector |")[2].partition("\n\n")[0]
    return [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]]


def options_of_jar(session: Any) -> list[str]:
    """The texts that the connector keeps in constants of these names."""
    loader = session._jsparkSession.sharedState().jarClassLoader()
    provider = session._jvm.java.lang.Class.forName("org.apache.spark.sql.kafka010.KafkaSourceProvider$", True, loader)
    found = []
    for field in provider.getDeclaredFields():
        name = str(field.getName()).rpartition("$$")[2]
        if field.getType().getSimpleName() == "String" and name.isupper() and not name.endswith("_MESSAGE"):
            field.setAccessible(True)
            found.append(str(field.get(None)).lower())
    return [one for one in found if " " not in one and one != "15m"]
