"""The log lines of a server process on stderr: as text for people, or as JSON for collectors."""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from textwrap import indent
from typing import Final, Literal

from klog.render.values import rfc3339
from klog.render.visible import one_line, visible

PEER_LINES_MAX: Final = 100
PEER_LINES_EVERY_S: Final = 60.0
PEERS_MAX: Final = 1000


class PeerLines(logging.Filter):
    """Of lines about what one address does wrong, ``PEER_LINES_MAX`` a minute from each place in the code.

    A client that errs in a loop would else fill the disk that the log dirs may share. Such a line carries
    ``extra={"peer": "ADDRESS:PORT"}``; lines without it, klog's own story, are never held back. The last line of a
    minute says that more will not be shown; the first that is shown after it, how many were not.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}
        """By file, line and address: when its minute began, and how many lines came in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        peer: str | None = getattr(record, "peer", None)
        if peer is None:
            return True
        address = peer.rpartition(":")[0]
        place = (record.pathname, record.lineno, address)
        with self._lock:
            began_s, before = self._seen.get(place, (record.created, 0))
            if record.created - began_s >= PEER_LINES_EVERY_S:
                if before > PEER_LINES_MAX:
                    _add(record, f" (and {before - PEER_LINES_MAX} more like it of {address}, not shown)")
                began_s, before = record.created, 0
            if place not in self._seen and len(self._seen) >= PEERS_MAX:
                self._seen.clear()
            self._seen[place] = (began_s, before + 1)
        if before + 1 == PEER_LINES_MAX:
            _add(record, f" (more like it of {address} are only counted, for {PEER_LINES_EVERY_S:g} s)")
        return before < PEER_LINES_MAX


def _add(record: logging.LogRecord, what: str) -> None:
    record.msg, record.args = record.getMessage() + what, None


class TextLine(logging.Formatter):
    """``2026-02-01T10:00:00.123Z WARNING storage: ...``; the name is without the ``klog.`` that all have.

    Where several brokers write into one stream, ``broker 2: `` stands before the name. Peers choose parts of messages:
    whatever is in one, it is one line, and does nothing to the terminal of who reads the file.
    """

    def __init__(self, broker: int | None = None) -> None:
        super().__init__()
        self._whose = "" if broker is None else f"broker {broker}: "

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_moment(record)} {record.levelname:<7} {self._whose}{_origin(record)}: "
        line += one_line(record.getMessage())
        return f"{line}\n{indent(visible(self.formatException(record.exc_info)), '  ')}" if record.exc_info else line


class JsonLine(logging.Formatter):
    """One object a line: ``time level origin message``; ``broker``, ``exception`` and ``peer`` where there is one."""

    def __init__(self, broker: int | None = None) -> None:
        super().__init__()
        self._whose = {} if broker is None else {"broker": broker}

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "origin": _origin(record),
            "message": record.getMessage(),
            **self._whose,
        }
        if (peer := getattr(record, "peer", None)) is not None:
            entry["peer"] = peer
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def log_to_stderr(form: Literal["text", "json"], level: int, *, broker: int | None = None) -> None:
    """Send this process's log lines to stderr, and nowhere else. ``broker``: each says that it is this one's."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine(broker) if form == "json" else TextLine(broker))
    handler.addFilter(PeerLines())
    logging.basicConfig(handlers=[handler], level=level, force=True)
    # kazoo tells of each attempt to connect; klog's own line about the session says what matters.
    logging.getLogger("klog.zookeeper.kazoo").setLevel(max(level, logging.ERROR))


def _moment(record: logging.LogRecord) -> str:
    return rfc3339(datetime.fromtimestamp(record.created, UTC))


def _origin(record: logging.LogRecord) -> str:
    return record.name.removeprefix("klog.")
