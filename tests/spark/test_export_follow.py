"""Following: the same run over and over, what may pass is tried again, and it ends in order."""

from __future__ import annotations

import json
import random
import re
import signal
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from klog.errors import CannotConnect, DiskFull, KlogError, OffsetOutOfRange, Refused, StorageError
from klog.export import follow as following
from klog.export.follow import STORAGE_TRIES, follow, may_pass
from klog.export.rows import ExportedRange
from tests.spark.conftest import Message, NewTopic, exported_offsets, exported_rows, make_messages, start_export
from tests.spark.exporting import export, states
from tests.spark.stopped_task import stop_while_writing

ROW = ExportedRange("t", 0, 0, 1, 1, 1, 1)


class Script:
    """Runs that end as told, one after the other; then it stops."""

    def __init__(self, *ends: list[ExportedRange] | KlogError) -> None:
        self.ends = list(ends)
        self.stop = threading.Event()
        self.batches = 0
        self.said: list[str] = []

    def __call__(self) -> list[ExportedRange]:
        end = self.ends.pop(0)
        if not self.ends:
            self.stop.set()
        if isinstance(end, KlogError):
            raise end
        return end

    def follow(self) -> int:
        return follow(self, 0.0, self.stop, on_batch=self.count, say=self.said.append)

    def count(self, rows: object) -> None:
        self.batches += 1


def test_it_shows_what_was_committed_and_nothing_else() -> None:
    script = Script([], [ROW], [], [ROW, ROW])
    assert script.follow() == script.batches == 2
    assert script.said == []


def test_a_batch_begins_when_so_much_waits_or_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_EVERY_S", 0.001)
    script, asked = Script([ROW], [ROW], [ROW]), [False, False, True] * 2
    assert follow(script, 3600.0, script.stop, on_batch=script.count, is_due=lambda: asked.pop(0)) == 3
    assert asked == []


@pytest.mark.parametrize("error", [CannotConnect("no broker"), DiskFull("no room")])
def test_what_may_pass_is_said_and_tried_again(error: KlogError) -> None:
    script = Script([], error, [ROW])
    assert script.follow() == 1
    assert [re.findall(r"0\.5 s|\b1 ", text) for text in script.said] == [
        ["0.5 s"],
        ["1 "],
    ] and error.message in script.said[0]


def test_what_will_not_pass_ends_it() -> None:
    for error in (Refused("another cluster"), OffsetOutOfRange("gone")):
        with pytest.raises(type(error)):
            Script([ROW], error, [ROW]).follow()
    with pytest.raises(CannotConnect):  # at the very first, somebody is there to read it
        Script(CannotConnect("no broker"), [ROW]).follow()
    assert may_pass(StorageError("x"), 1)
    assert not may_pass(StorageError("x"), STORAGE_TRIES)


def test_a_batch_that_fails_while_it_is_stopped_is_discarded_in_order() -> None:
    script = Script([ROW], Refused("the JVM is gone"))  # the last of a script sets stop
    assert script.follow() == 1
    assert len(script.said) == 1 and "the JVM is gone" in script.said[0]


def test_a_topic_is_followed_and_the_batch_in_hand_is_committed(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    produced = topic.produce(make_messages(20))
    stop, committed = threading.Event(), threading.Semaphore(0)

    def one_run() -> list[ExportedRange]:
        def stopped_meanwhile(step: str) -> None:
            if step == "written" and len(exported_rows(tmp_path)) == 40:
                stop.set()

        return export(topic, tmp_path, on_step=stopped_meanwhile)

    batches: list[int] = []
    thread = threading.Thread(
        target=lambda: batches.append(follow(one_run, 0.05, stop, on_batch=lambda rows: committed.release()))
    )
    thread.start()
    try:
        for number in (1, 2):
            assert committed.acquire(timeout=60)
            produced += topic.produce(make_messages(20, 20 * number))
        assert committed.acquire(timeout=60)
        thread.join(60)
        assert not thread.is_alive()
    finally:
        stop.set()
        thread.join()
    assert batches == [3]
    assert exported_offsets(tmp_path) == produced
    assert set(states(tmp_path, topic)) == {"ok"}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.long("a second fault of a run; test_pipeline_kills.py kills one")
def test_a_jvm_that_is_killed_in_the_middle_of_a_batch_is_replaced(new_topic: NewTopic, tmp_path: Path) -> None:
    topic, root = new_topic(), tmp_path / "root"
    produced = topic.produce(make_messages(10))
    following = start_export(
        topic, root, "--follow", "--from", "start", "--every", "200ms", "--max-file-bytes", "100kb", output="jsonl"
    )
    assert following.stdout is not None
    itself = psutil.Process(following.pid)
    below: list[psutil.Process] = []
    try:
        exported = json.loads(following.stdout.readline())["messages"]
        values = random.Random(len(produced))
        produced += topic.produce([Message(None, values.randbytes(500)) for _ in range(20_000)], batch=500)
        task, _ = stop_while_writing(following, root, lambda: itself.children(recursive=True))
        below = itself.children(recursive=True)
        [jvm] = [one for one in itself.children() if one.name() == "java"]
        jvm.kill()
        task.kill()
        while exported < len(produced):
            exported += json.loads(following.stdout.readline())["messages"]
        for _ in range(2):  # as `timeout` does
            following.send_signal(signal.SIGTERM)
        _, said = following.communicate()
    finally:
        for one in (*below, following):
            with suppress(psutil.NoSuchProcess):
                one.kill()
    assert following.returncode == 0, said
    assert "JVM" in said and "SIGKILL" in said
    assert re.search(r"\b1 try\b", said)
    assert exported_offsets(root) == produced
    assert set(states(root, topic)) == {"ok"}
