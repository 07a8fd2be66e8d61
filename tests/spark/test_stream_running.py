"""A stream's folder, what it reports, and how it goes on after failures. No JVM: queries that do as they are told."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from klog.client.raw_fetch import RawCluster
from klog.errors import CannotConnect, KlogError, NoSuchThing, Refused, StorageError, TimedOut, UsageError
from klog.export.stores.local import LocalStore
from klog.spark.short_errors import PythonWorkerLost
from klog.streams import running, status
from klog.streams.batch_ends import BatchEnds, Ends
from klog.streams.folder import Description, Progress, StreamFolder, all_streams
from klog.streams.program import Input, Program, check_names, from_python, sink_of
from klog.streams.stream import Stream
from klog.streams.streams import Streams
from tests.broker_fixture import ROOT, RunningBroker
from tests.cli.runner import klog
from tests.processes import klog_process
from tests.spark.conftest import NewTopic, make_messages
from tests.spark.refusals import not_refused


def description(name: str = "counts", **changes: Any) -> Description:
    values = {"sources": ("views",), "target": "topic:counts", "program": "SELECT 1", "servers": "h:9092"}
    return Description(name, **{**values, **changes})


# --- Its folder ---


def test_a_stream_keeps_what_it_is(tmp_path: Path) -> None:
    folder = StreamFolder(tmp_path, "counts")
    with pytest.raises(NoSuchThing):
        folder.existing()
    folder.describe(description())
    folder.describe(description(program="SELECT 2"))
    assert folder.existing().program == "SELECT 2"
    folder.describe(description(sources=("veiws",)))  # mistyped: nothing was read yet
    folder.describe(description())
    (folder.checkpoint / "offsets").mkdir(parents=True)
    (folder.checkpoint / "offsets/0").write_text("v1")
    for other in ({"target": "topic:others"}, {"sources": ("views", "clicks")}):
        with pytest.raises(Refused):
            folder.describe(description(**other))
    assert [one.name for one in all_streams(tmp_path)] == ["counts"]
    folder.remove()
    assert all_streams(tmp_path) == []
    for name in ("", "../up", "a/b", ".hidden", "x" * 101):
        with pytest.raises(UsageError):
            StreamFolder(tmp_path, name)


def test_what_is_wrong_is_said_before_spark_starts(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic().name
    for words, named in (
        (("-e", "SELECT 1", "--from", topic, "--to", f"topic:{topic}"), "its own results"),
        (("-e", "SELECT 1", "--from", f"{topic}-no", "--to", f"topic:{topic}"), f"{topic}-no"),
        (("-e", "SELECT 1", "--from", topic, "--to", f"topic:{topic}-no"), f"{topic}-no"),
        ((str(tmp_path / "no.py"), "--from", topic, "--to", f"topic:{topic}-no"), "no.py"),
    ):
        done = klog("stream", "run", *words, "--state", tmp_path / "state", "-B", new_topic().bootstrap)
        assert done.code in (1, 2) and named in done.stderr and "Spark" not in done.stderr, done
    assert not list(tmp_path.glob("state/*/stream.json"))


def test_a_topic_that_may_not_be_read_is_said_before_spark_starts(
    make_broker: Callable[..., RunningBroker], tmp_path: Path
) -> None:
    broker = make_broker(authorizer__class__name="klog", allow__everyone__if__no__acl__found="true").start()
    at = ("-B", broker.bootstrap)
    assert klog("topic", "create", "secret", *at).code == 0
    assert klog("acl", "add", "User:*", "describe", "topic:secret", "--deny", *at, "--yes").code == 0
    words = ("-e", "SELECT 1", "--from", "secret", "--to", f"export:{tmp_path}/x", "--state", tmp_path, "--once")
    done = klog("stream", "run", *words, *at, "-o", "jsonl")
    assert (done.code, done.error["code"]) == (1, "TOPIC_AUTHORIZATION_FAILED") and "Spark" not in done.stderr


def test_a_stream_that_goes_on_waits_for_its_brokers(make_broker: Callable[..., RunningBroker], tmp_path: Path) -> None:
    broker = make_broker().start()
    broker.kill()
    folder = StreamFolder(tmp_path, "known")
    (folder.checkpoint / "offsets").mkdir(parents=True)
    (folder.checkpoint / "offsets/0").write_text("v1")
    words = ["stream", "run", "-e", "SELECT 1", "--from", "no-topic", "-B", broker.bootstrap]
    words += ["--to", f"export:{tmp_path}/x", "--state", str(tmp_path), "--name"]
    assert klog(*words, "new", "-o", "jsonl").error["code"] == "CANNOT_CONNECT"
    with klog_process([*words, "known"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None and broker.bootstrap in process.stderr.readline()
        broker.start()
        assert "no-topic" in process.stderr.read()
    assert process.returncode == 1


def test_one_process_runs_a_stream_and_its_end_is_seen(tmp_path: Path) -> None:
    folder = StreamFolder(tmp_path, "counts")
    folder.describe(description())
    program = (
        "import sys; from pathlib import Path; from klog.streams.folder import StreamFolder\n"
        "with StreamFolder(Path(sys.argv[1]), 'counts').running(): print('up', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        assert folder.is_running()
        with pytest.raises(Refused), folder.running():
            pass
        with pytest.raises(Refused):
            folder.remove()
    finally:
        process.kill()
        process.communicate()
    assert not folder.is_running()
    assert status.state_of(folder, folder.progress()) == status.KILLED
    with folder.running():
        assert status.state_of(folder, None) == status.RUNNING
    assert status.state_of(folder, Progress(is_over=True)) == status.STOPPED
    assert status.state_of(folder, Progress(is_over=True, error="x")) == status.FAILED


def test_a_look_whether_a_stream_runs_does_not_keep_it_from_starting(tmp_path: Path) -> None:
    folder = StreamFolder(tmp_path, "counts")
    folder.describe(description())
    with (folder.path / "lock").open("a") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        look_ends = threading.Timer(0.05, fcntl.flock, (looking, fcntl.LOCK_UN))
        look_ends.start()
        with folder.running():
            look_ends.join()


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "counts/stream.json"
    file.parent.mkdir()

    def describe(text: str) -> Description:
        file.write_text(text)
        return StreamFolder(tmp_path, "counts").description()

    cases = ((text, r"stream\.json") for text in ("", "[]", "{", '{"version": 9}'))
    assert not_refused(cases, describe, Refused) == []


# --- Going on ---


class _Found(NamedTuple):
    json: str


def batch(number: int, **values: Any) -> _Found:
    value: dict[str, Any] = {
        "batchId": number,
        "timestamp": f"2026-11-25T10:00:{number:02d}.000Z",
        "durationMs": {"addBatch": 1, "triggerExecution": 2},
        "numInputRows": 3,
        **values,
    }
    return _Found(json.dumps(value))


class Query:
    """One that has these batches, and then ends, fails, or waits until it is stopped."""

    def __init__(self, *batches: _Found, error: KlogError | None = None, waits: bool = False) -> None:
        self.recentProgress = batches
        self._error = error
        self._over = threading.Event()
        if not waits:
            self._over.set()

    def awaitTermination(self, timeout: float) -> bool:
        if self._over.wait(0.01 if self.recentProgress else timeout) and self._error is not None:
            error, self._error = self._error, None
            if self.recentProgress:
                self._error = error
                self.awaitTermination = self._fails  # type: ignore[method-assign]
                return False
            raise error
        return self._over.is_set()

    def _fails(self, timeout: float) -> bool:
        assert self._error is not None
        raise self._error

    def stop(self) -> None:
        self._over.set()


def run(tmp_path: Path, *queries: Query | KlogError, stop: threading.Event | None = None) -> tuple[Progress, list[Any]]:
    folder = StreamFolder(tmp_path, "counts")
    left = list(queries)
    seen: list[Any] = []

    def start() -> Query:
        found = left.pop(0)
        if isinstance(found, KlogError):
            raise found
        return found

    done = running.run(folder, start, stop or threading.Event(), on_batch=lambda one: seen.append(one.batch))
    assert not left
    return done, seen


def test_what_passes_starts_it_again_and_a_batch_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PAUSE_MAX_S", 0.001)
    done, seen = run(
        tmp_path,
        Query(batch(0), batch(1), error=CannotConnect("away")),
        CannotConnect("still away"),
        Query(batch(1), batch(2)),
    )
    assert seen == [0, 1, 2]
    assert (done.batch, done.restarts, done.error, done.is_over) == (2, 2, None, True)


def test_what_does_not_pass_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PAUSE_MAX_S", 0.001)
    with pytest.raises(CannotConnect):  # the user still watches
        run(tmp_path, CannotConnect("away"))
    with pytest.raises(TimedOut):  # Spark's Python was slow to start
        run(tmp_path, *[TimedOut("10 s") for _ in range(5)])
    with pytest.raises(PythonWorkerLost):
        run(tmp_path, *[PythonWorkerLost("killed") for _ in range(5)])
    with pytest.raises(Refused):
        run(tmp_path, Query(batch(0), error=Refused("another topic")))
    found = StreamFolder(tmp_path, "counts").progress()
    assert found is not None and found.is_over and found.error is not None and "another topic" in found.error
    with pytest.raises(StorageError):
        run(tmp_path, Query(batch(1), error=StorageError("1")), *[StorageError("again") for _ in range(4)])
    done, seen = run(tmp_path, CannotConnect("away"), Query(batch(2)))  # a stream that had a batch waits from the start
    assert (done.batch, done.restarts, seen) == (2, 1, [2])


def test_it_stops_when_it_is_asked_to(tmp_path: Path) -> None:
    folder = StreamFolder(tmp_path, "counts")
    folder.describe(description())
    query = Query(waits=True)
    asking = threading.Timer(0.05, folder.ask_to_stop)
    asking.start()
    done, _ = run(tmp_path, query)
    asking.join()
    assert done.is_over and done.error is None
    folder.describe(description())  # the next start
    assert not folder.is_asked_to_stop()


def test_progress_is_that_of_spark() -> None:
    value = {
        "batchId": 7,
        "timestamp": "2026-11-25T10:00:00.000Z",
        "durationMs": {"triggerExecution": 900},
        "numInputRows": 90,
        "processedRowsPerSecond": 100.04,
        "eventTime": {"watermark": "2026-11-25T09:59:00.000Z"},
        "stateOperators": [
            {"numRowsTotal": 5, "memoryUsedBytes": 10, "numRowsDroppedByWatermark": 2},
            {"numRowsTotal": 1, "memoryUsedBytes": 1},
        ],
        "sources": [{"endOffset": '{"offsets": {"a": {"0": 5}}}'}, {"endOffset": {"offsets": {"b": {"1": 6}}}}],
    }
    found = running.after_batch(Progress(late=1, error="before"), value)
    assert (found.batch, found.batch_ms, found.rows, found.rows_per_s) == (7, 900, 90, 100.0)
    assert (found.state_rows, found.state_bytes, found.late, found.error) == (6, 11, 3, None)
    assert found.offsets == {"a": {"0": 5}, "b": {"1": 6}}


def test_the_lag_is_in_messages(new_topic: NewTopic) -> None:
    topic = new_topic(2)
    offsets = topic.produce(make_messages(10))
    topic.produce(make_messages(4), 1)
    with RawCluster(topic.bootstrap) as cluster:
        assert status.lag(cluster, Progress()) is None
        assert status.lag(cluster, Progress(offsets={topic.name: {"0": offsets[3]}})) == 7 + 4
        assert status.lag(cluster, Progress(offsets={"not-there": {"0": 1}})) is None
        topic.delete_before(offsets[5])
        assert status.lag(cluster, Progress(offsets={topic.name: {"0": offsets[3], "1": 0}})) is None


# --- The ends of a target ---


def test_the_first_attempt_says_where_a_batch_begins(tmp_path: Path) -> None:
    first = BatchEnds(LocalStore(tmp_path), "sink", "query", "counts")
    assert first.keep(0, Ends("id", (5, 6))) == Ends("id", (5, 6))
    assert first.keep(0, Ends("id", (50, 60, 70))) == Ends("id", (5, 6))
    for number in range(1, 5):
        first.keep(number, Ends("id", (number,)))
    assert sorted(one.name for one in (tmp_path / "sink").iterdir()) == ["0000000003.json", "0000000004.json"]
    for other in (("other", "counts"), ("query", "others")):
        with pytest.raises(Refused):
            BatchEnds(LocalStore(tmp_path), "sink", *other).keep(4, Ends("id", ()))
    (tmp_path / "sink/0000000004.json").write_text("{")
    with pytest.raises(Refused, match=r"0000000004\.json"):
        first.keep(4, Ends("id", ()))


# --- What is asked for ---


def test_inputs_and_outputs_by_their_words() -> None:
    assert Input.parse("views").form.text is False
    assert Input.parse("views:text").form.text
    assert Input.parse("my.views-1:json=a int, b struct<c: int>").form.json == "a int, b struct<c: int>"
    assert Input.parse("my.views-1").name == "my_views_1"
    assert Input.parse("v:avro").form.avro is True and Input.parse("v:avro=7").form.avro == 7
    for text in ("v:csv", "v:json", "v:avro=x", "v:"):
        with pytest.raises(UsageError):
            Input.parse(text)
    with pytest.raises(UsageError):
        check_names((Input("a.b"), Input("a-b")))
    with pytest.raises(UsageError):
        check_names((Input("a"), Input("a")))
    for text in ("counts", "file:/x", "topic", ""):
        with pytest.raises(UsageError):
            sink_of("h:1", text, ())


def test_a_program_is_a_file_or_a_query(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT 1")
    assert Program.of(tmp_path / "q.sql", None).sql == "SELECT 1"
    assert str(Program.of(None, "SELECT 2")) == "SELECT 2"
    for path, sql in ((None, None), (tmp_path / "q.sql", "x"), (tmp_path / "q.txt", None), (tmp_path / "no.sql", None)):
        with pytest.raises(UsageError):
            Program.of(path, sql)


class _Frame:
    isStreaming = True


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("def stream(views): return views", None),
        ("def stream(views, streams): return views.frame", None),
        ("def stream(clicks): return clicks", "clicks"),
        ("def other(views): return views", "stream"),
        ("def stream(views): return 7", "int"),
        ("def stream(views): return views.frame / 0", "TypeError"),
        ("1 / 0", "ZeroDivisionError"),
        ("def stream(", "SyntaxError"),
    ],
)
def test_a_program_in_python(tmp_path: Path, text: str, error: str | None) -> None:
    path = tmp_path / "program.py"
    path.write_text(text)
    views = Stream(_Frame())
    if error is None:
        assert from_python(path, Streams("h:1"), {"views": views}).frame is views.frame
        return
    with pytest.raises(UsageError, match=error):
        from_python(path, Streams("h:1"), {"views": views})


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NoSuchThing):
        from_python(tmp_path / "no.py", Streams("h:1"), {})
