"""Goal: what is given up is named by its line, whatever is like it. Method: settled by hand, as librdkafka would."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.errors import UsageError
from klog.render.jsonl import Content, from_line
from klog.tools import deliveries
from klog.tools.deliveries import Deliveries, Line, LineRange, Rejects, ranges


class Settled:
    """librdkafka's message, of which the value alone is used."""

    def __init__(self, value: bytes | None) -> None:
        self._value = value

    def value(self) -> bytes | None:
        return self._value


def book() -> tuple[Deliveries, list[Line]]:
    lost: list[Line] = []
    return Deliveries(lambda error, message: error is None, lambda line, content, error: lost.append(line)), lost


def test_lines_that_follow_one_another_are_one_range() -> None:
    lines = [Line("b", 1), Line("a", 3), Line("a", 4), Line("a", 6), Line("a", 5), Line("a", 9), Line("a", 9)]
    assert ranges(lines) == [LineRange("a", 3, 6), LineRange("a", 9, 9), LineRange("b", 1, 1)]
    assert list(map(str, ranges(lines)))[:2] == ["lines 3 to 6 of a", "line 9 of a"]


def test_lines_that_are_alike_are_each_named_once() -> None:
    all_of, lost = book()
    chunk = all_of.chunk("in", 11, [b"same", b"other", b"same", b"", b"same"])
    for value in (b"same", None, b"same", b"same"):
        chunk.answered("lost", Settled(value))
    chunk.answered(None, Settled(b"other"))
    assert sorted(lost) == [Line("in", 11), Line("in", 13), Line("in", 14), Line("in", 15)]
    assert all_of.open_lines() == []


def test_messages_with_parts_are_told_by_their_place() -> None:
    kept: list[tuple[Line, Content]] = []
    all_of = Deliveries(lambda error, message: error is None, lambda line, content, error: kept.append((line, content)))
    rows = [(number, Content(b"k", b"same", [("h", b"%d" % number)], None)) for number in (1, 2, 7)]
    chunk = all_of.contents("in", rows)
    chunk.answered(2, "lost", Settled(b"same"))
    chunk.answered(0, None, Settled(b"same"))
    assert all_of.open_lines() == [Line("in", 1), Line("in", 2), Line("in", 7)]
    chunk.answered(1, "lost", Settled(b"same"))
    assert kept == [(Line("in", 7), rows[2][1]), (Line("in", 2), rows[1][1])]
    assert all_of.open_lines() == []


def test_what_is_first_and_not_answered_stalls_all(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(deliveries.time, "monotonic", lambda: now)
    all_of, _ = book()
    assert not all_of.look()
    first = all_of.chunk("in", 1, [b"a", b"b"])
    message = all_of.contents("in", [(3, Content(b"k", b"c", [], None))])
    assert not all_of.look()
    now += deliveries.STALL_S / 2
    first.answered(None, Settled(b"a"))  # something has become of it
    assert not all_of.look()
    now += deliveries.STALL_S + 0.1
    assert all_of.look()
    assert all_of.stalled_since == pytest.approx(100.0 + deliveries.STALL_S / 2)
    message.answered(0, None, Settled(b"c"))  # not what was sent first
    assert all_of.look()
    assert all_of.open_lines() == [Line("in", 1), Line("in", 2)]
    first.answered("given up", Settled(b"b"))
    assert not all_of.look()
    assert all_of.stalled_since is None


def test_rejects_go_in_again_without_loss(tmp_path: Path) -> None:
    contents = [
        Content(None, b"text", [], None),
        Content(b"\xff", None, [("h", b"\xfe"), ("h", None)], 10**12),
        Content(b"", "ü\n".encode(), [], None),
    ]
    path = tmp_path / "rejects"
    rejects = Rejects(path)
    for number, content in enumerate(contents):
        rejects.write("t", Line("some 'file'", number), content, 'why "so"')
    rejects.close()
    assert [from_line(line) for line in path.read_bytes().splitlines()] == contents
    more = Rejects(path)
    more.close()
    assert len(path.read_bytes().splitlines()) == 3, "what was there is kept"
    Rejects(tmp_path / "none").close()
    assert not (tmp_path / "none").exists()
    with path.open("rb") as source, pytest.raises(UsageError, match=path.name):
        Rejects(path, [source])
