"""What a task does before and while it reads: the worker is as the driver, and memory is bounded by batches."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from klog.errors import CorruptLog, HostError, Refused, UnknownTopicOrPartition
from klog.spark.options import SourceOptions
from klog.spark.planning import Task, plan
from klog.spark.tasks import TaskPartition, Versions, check_pyarrow, check_worker, read_partition, until_left
from tests.broker_fixture import ROOT
from tests.spark.conftest import Message, NewTopic, TopicOnBroker, make_messages


def options(topic: TopicOnBroker, **more: str) -> SourceOptions:
    return SourceOptions.parse({"bootstrap.servers": topic.bootstrap, "subscribe": topic.name, **more})


def test_a_worker_with_other_versions_is_named(new_topic: NewTopic) -> None:
    here = Versions.here()
    check_worker(here)
    with pytest.raises(HostError, match=rf"pyspark {here.pyspark} .*3\.5"):
        check_worker(here._replace(pyspark="3.5"))
    topic = new_topic()
    topic.produce(make_messages(1))
    task = TaskPartition(0, plan(options(topic))[0])
    task.versions = here._replace(klog="0", python="2.7")
    with pytest.raises(HostError, match=r"klog \S+ .*\b0, python \S+ .* 2\.7"):
        next(read_partition(options(topic), task))


def test_a_python_without_pyarrow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(HostError, match=f"pyarrow.*{sys.executable}"):
        check_pyarrow()


def test_a_short_read_is_an_error(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.produce(make_messages(10), batch=3)
    (task,) = plan(options(topic))
    assert task.messages == (10,)
    for wrong in (9, 11):
        with pytest.raises(CorruptLog, match=rf"\b{wrong}\b.*\b10\b"):
            list(read_partition(options(topic), TaskPartition(0, Task(task.ranges, (wrong,)))))


def test_a_topic_that_goes_before_it_is_read(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.produce(make_messages(10))
    (task,) = plan(options(topic))
    topic.delete()
    how = {"kafka.request.timeout.ms": "100"}
    with pytest.raises(UnknownTopicOrPartition):
        list(read_partition(options(topic, **how), TaskPartition(0, task)))
    assert list(read_partition(options(topic, failOnDataLoss="false", **how), TaskPartition(0, task))) == []
    anew = TopicOnBroker(topic.bootstrap, topic.name, 1)
    anew.produce(make_messages(10, 100))  # as many, at the same offsets
    with pytest.raises(Refused, match="deleted"):
        list(read_partition(options(topic), TaskPartition(0, task)))
    assert list(read_partition(options(topic, failOnDataLoss="false"), TaskPartition(0, task))) == []


def test_batches_keep_to_their_bytes(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.produce([Message(None, bytes(1000)) for _ in range(500)], batch=10)
    how = options(topic, batchBytes="30000")
    (task,) = plan(how)
    sizes = [batch.nbytes for batch in read_partition(how, TaskPartition(0, task))]
    assert len(sizes) > 15
    assert max(sizes) < 40_000


_READ_ALL = """
import json, resource, sys
from klog.spark.options import SourceOptions
from klog.spark.planning import plan
from klog.spark.tasks import TaskPartition, read_partition

options = SourceOptions.parse(json.loads(sys.argv[1]))
(task,) = plan(options)
value_bytes = early_kb = 0
for batch in read_partition(options, TaskPartition(0, task)):
    value_bytes += batch["value"].nbytes
    if value_bytes > 16e6 and not early_kb:
        early_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([value_bytes, early_kb, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def test_memory_does_not_grow_with_the_range(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.produce([Message(None, bytes(50_000)) for _ in range(1_000)], codec="zstd")  # one fetch brings it all
    given = {"bootstrap.servers": topic.bootstrap, "subscribe": topic.name, "splitBytes": str(10**9)}
    found = subprocess.run(
        [sys.executable, "-c", _READ_ALL, json.dumps(given)], cwd=ROOT, check=True, capture_output=True, timeout=100
    )
    value_bytes, early_kb, end_kb = json.loads(found.stdout)
    assert value_bytes >= 50_000_000
    assert end_kb - early_kb < 20_000, "34 MB more were read"


def test_a_worker_that_is_hung_up_on_has_no_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark's worker does it: a generator around ours, closed while the broken pipe is on its way up."""

    def around() -> Iterator[int]:
        yield from until_left(iter([1, 2]))  # type: ignore[arg-type, misc]

    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    rows = around()
    next(rows)
    rows.close()
    assert sys.stderr is screen  # left, and nothing is broken
    rows = around()
    next(rows)
    with pytest.raises(BrokenPipeError):
        try:
            raise BrokenPipeError
        finally:
            rows.close()
    print("last words", file=sys.stderr)
    assert screen.getvalue() == ""
    sys.stderr.close()
