"""State-change logs of several brokers in one order."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from klog.errors import NoSuchThing
from klog.tools.merge_state import merge_state
from tests.cli.runner import klog


def write(path: Path, *entries: tuple[str, str, dict[str, object]]) -> Path:
    broker = int(path.stem[-1])
    lines = [
        json.dumps({"ts": f"2026-02-01T10:00:{at}Z", "broker": broker, "kind": kind, **more})
        for at, kind, more in entries
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_by_time_and_then_by_epoch(tmp_path: Path) -> None:
    one = write(
        tmp_path / "b1",
        ("00.000", "first", {}),
        ("03.000", "later-epoch", {"leader_epoch": 7, "topic": "t", "partition": 0}),
        ("03.000", "even-later", {"leader_epoch": 7}),
    )
    two = write(tmp_path / "b2", ("01.500", "between", {}), ("03.000", "earlier-epoch", {"leader_epoch": 6}))
    rows = list(merge_state([one, two]))
    assert [(row.broker, row.kind) for row in rows] == [
        (1, "first"),
        (2, "between"),
        (2, "earlier-epoch"),
        (1, "later-epoch"),
        (1, "even-later"),
    ]
    assert [row.epoch for row in rows] == [None, None, 6, 7, 7]


def test_a_clock_that_was_set_back_does_not_turn_a_file_around(tmp_path: Path) -> None:
    one = write(tmp_path / "b1", ("05.000", "a", {}), ("01.000", "b", {}), ("06.000", "c", {}))
    two = write(tmp_path / "b2", ("02.000", "d", {}), ("05.500", "e", {}))
    assert [row.kind for row in merge_state([one, two])] == ["d", "a", "b", "e", "c"]


def test_filters(tmp_path: Path) -> None:
    one = write(
        tmp_path / "b1",
        ("01.000", "k", {"topic": "t", "partition": 0}),
        ("02.000", "k", {"topic": "t", "partition": 1}),
        ("03.000", "k", {"topic": "u", "partition": 0}),
        ("04.000", "m", {}),
    )

    def seconds(**wanted: object) -> list[int]:
        return [row.time.second for row in merge_state([one], **wanted) if row.time is not None]  # type: ignore[arg-type]

    assert seconds() == [1, 2, 3, 4]
    assert seconds(topics=["t"]) == [1, 2]
    assert seconds(topics=["t"], partitions=[1]) == [2]
    assert seconds(kinds=["m"]) == [4]
    everything = seconds()
    at = [datetime(2026, 2, 1, 10, 0, second, tzinfo=UTC) for second in (2, 4)]
    assert seconds(since=at[0], until=at[1]) == [second for second in everything if 2 <= second < 4]
    assert seconds(until=at[1]) == [second for second in everything if second < 4]
    assert klog("log", "merge-state", one, "--since", "@2026-02-01T10:00:04Z", "-o", "json").rows
    for wrong in (["--since", "5"], ["--until", f"@{10**17}"], ["--since", "@5", "--until", "@5"]):
        assert klog("log", "merge-state", one, *wrong).code == 2


def test_a_torn_line_is_a_failed_row_where_it_stands(tmp_path: Path) -> None:
    one = write(tmp_path / "b1", ("01.000", "a", {"why": [1, 2]}))
    with one.open("a") as file:
        file.write('{"ts": "2026-02-01T10:0')
    rows = list(merge_state([one]))
    assert [row.error for row in rows] == [None, "BAD_LINE"]
    assert rows[0].detail == {"why": [1, 2]}
    ran = klog("log", "merge-state", str(one), "-o", "jsonl")
    assert ran.code == 1
    assert [json.loads(line)["kind"] for line in ran.stdout.splitlines()] == ["a", None]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoSuchThing, match="nowhere"):
        merge_state([tmp_path / "nowhere"])
