"""What a person sees while a batch is written."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from klog.client.raw_fetch import Range
from klog.export import progress
from klog.export.batch_writer import WriteJob, WriteResult
from klog.export.progress import line, timed, watching
from klog.export.stores.local import LocalStore


def test_a_line_says_how_far_how_fast_and_how_long() -> None:
    assert line(4_000_000, 800_000_000, None, 0) == "4,000,000 messages, 800 MB: starting"
    assert line(4_000_000, 800_000_000, 0.0, 1) == "0 of 4,000,000 messages, 0 of 800 MB"
    assert line(4_000_000, 800_000_000, 0.25, 2) == (
        "1,000,000 of 4,000,000 messages, 200 of 800 MB, 500,000/s, 6 s left"
    )
    assert line(None, 800_000_000, 0.5, 2) == "400 of 800 MB, 200 MB/s, 2 s left"


@pytest.mark.parametrize("fails", [False, True])
def test_it_is_shown_while_it_is_written_and_then_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    seen, enough = [], threading.Event()

    def show(text: str) -> None:
        seen.append(text)
        if len(seen) >= 3:
            enough.set()

    class Slow:
        engine = "slow"

        @property
        def fraction(self) -> float:
            if len(seen) == 1:
                raise OSError("the JVM is gone")
            return 0.5

        def ready(self, decode: object) -> None: ...

        def write(self, job: WriteJob) -> WriteResult:
            assert enough.wait(30)
            if fails:
                raise OSError("no")
            return WriteResult()

    job = WriteJob("", [Range("t", 0, 0, 2_000_000)], LocalStore(tmp_path), "x", messages=10)
    slow = Slow()
    with pytest.raises(OSError, match="no") if fails else nullcontext(), watching(slow, job, show):
        slow.write(job)
    assert seen[0].startswith("5 of 10 messages, 1 of 2 MB")
    assert seen[1] == "10 messages, 2 MB: starting"
    assert seen[-1] == ""


def test_steps_are_said_with_their_durations() -> None:
    said: list[str] = []
    times = iter([1.0, 1.5, 4.0, 9.0, 9.25])
    step = timed(said.append, lambda: next(times))
    for name in ("planned", "staged", "written", "planned", "staged"):
        step(name)
    assert said == ["planned", "staged in 0.50 s", "written in 2.50 s", "planned", "staged in 0.25 s"]
