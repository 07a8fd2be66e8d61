"""What a peer does wrong in a loop does not fill the log, and what was left out is told."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from klog.render.log_lines import PEER_LINES_EVERY_S, PEER_LINES_MAX, PEERS_MAX, JsonLine, PeerLines, TextLine


class Shown(logging.Handler):
    """What would be written."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(PeerLines())
        self.setFormatter(TextLine())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def shown() -> Iterator[Shown]:
    yield Shown()


def say(shown: Shown, at_s: float, peer: str | None = "10.0.0.1:4711", line: int = 7, message: str = "bad") -> None:
    fields: dict[str, Any] = {
        "name": "klog.net",
        "levelno": logging.WARNING,
        "levelname": "WARNING",
        "pathname": "connection.py",
        "lineno": line,
        "msg": "%s of a peer",
        "args": (message,),
        "created": at_s,
    }
    shown.handle(logging.makeLogRecord(fields if peer is None else {**fields, "peer": peer}))


def test_the_last_line_of_a_minute_says_so_and_the_next_one_how_many(shown: Shown) -> None:
    for number in range(1_000):
        say(shown, 100 + number / 1_000, peer=f"10.0.0.1:{number}")
    assert len(shown.lines) == PEER_LINES_MAX
    assert "more" not in "".join(shown.lines[:-1])
    assert "bad of a peer (" in shown.lines[-1] and shown.lines[-1].endswith(f"{PEER_LINES_EVERY_S:g} s)")
    say(shown, 100 + PEER_LINES_EVERY_S)
    assert f" {1_000 - PEER_LINES_MAX} more" in shown.lines[-1] and " 10.0.0.1" in shown.lines[-1]
    say(shown, 101 + PEER_LINES_EVERY_S)
    assert shown.lines[-1].endswith("WARNING net: bad of a peer")


def test_others_other_lines_and_the_own_story_are_not_held_back(shown: Shown) -> None:
    for _ in range(PEER_LINES_MAX + 5):
        say(shown, 100)
    count = len(shown.lines)
    say(shown, 100, peer="10.0.0.2:4711")
    say(shown, 100, line=8)
    say(shown, 100, peer="2001:db8::1:4711")
    assert len(shown.lines) == count + 3
    for _ in range(10 * PEER_LINES_MAX):
        say(shown, 100, peer=None)
    assert len(shown.lines) == count + 3 + 10 * PEER_LINES_MAX


def test_as_many_as_were_let_through_are_counted_as_none_held_back(shown: Shown) -> None:
    for _ in range(PEER_LINES_MAX):
        say(shown, 100)
    say(shown, 200)
    assert shown.lines[-1].endswith("bad of a peer")


def test_addresses_without_end_cost_a_bounded_table(shown: Shown) -> None:
    peer_lines = shown.filters[0]
    assert isinstance(peer_lines, PeerLines)
    for number in range(3 * PEERS_MAX):
        say(shown, 100, peer=f"10.{number // 256}.{number % 256}.1:9")
    assert len(shown.lines) == 3 * PEERS_MAX
    assert len(peer_lines._seen) <= PEERS_MAX


def test_the_peer_is_a_field_of_a_line_as_json() -> None:
    record = logging.makeLogRecord({"name": "klog.net", "msg": "bad", "levelname": "WARNING", "peer": "10.0.0.1:9"})
    assert json.loads(JsonLine().format(record))["peer"] == "10.0.0.1:9"
    record = logging.makeLogRecord({"name": "klog.net", "msg": "bad", "levelname": "WARNING"})
    assert "peer" not in json.loads(JsonLine().format(record))


HOSTILE = "\x1b[2Jx\r\n2026-11-25T03:00:00.000Z INFO    server.broker: forged\x00\u202e\x9b31m\u2028\t"


def test_a_name_that_a_peer_has_chosen_makes_no_line_and_commands_no_terminal(shown: Shown) -> None:
    say(shown, 100, message=HOSTILE)
    (line,) = shown.lines
    assert line.isprintable() and "\\x1b[2Jx\\x0d\\x0a2026" in line and "\\u202e\\x9b31m\\u2028\\x09 of" in line


def test_a_traceback_has_its_lines_and_no_commands() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        record = logging.makeLogRecord(
            {"name": "klog.x", "msg": "ours", "levelname": "ERROR", "exc_info": (ValueError, error, None)}
        )
    text = TextLine().format(record)
    assert "\n  ValueError: " in text and "\\x1b[2J" in text
    first, *others = text.split("\n")
    assert first.endswith("ERROR   x: ours") and all(line.startswith("  ") for line in others)
    assert all(line.isprintable() for line in text.replace("\u2028", "").replace("\t", "").split("\n"))


def test_a_line_of_json_stays_one_object(shown: Shown) -> None:
    line = JsonLine().format(
        logging.makeLogRecord({"name": "klog.x", "msg": HOSTILE, "levelname": "ERROR", "peer": HOSTILE})
    )
    assert "\n" not in line and json.loads(line)["message"] == json.loads(line)["peer"] == HOSTILE
