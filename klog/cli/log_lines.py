"""The log lines of a server process on stderr: as text for people, or as JSON for collectors."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

from klog.render.values import rfc3339


class TextLine(logging.Formatter):
    """``2026-02-01T10:00:00.123Z WARNING storage: ...``; the name is without the ``klog.`` that all have."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_moment(record)} {record.levelname:<7} {_origin(record)}: {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLine(logging.Formatter):
    """One object a line: ``time level origin message``, and ``exception`` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "origin": _origin(record),
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def log_to_stderr(form: Literal["text", "json"], level: int) -> None:
    """Send this process's log lines to stderr, and nowhere else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine() if form == "json" else TextLine())
    logging.basicConfig(handlers=[handler], level=level, force=True)
    # kazoo tells of each attempt to connect; klog's own line about the session says what matters.
    logging.getLogger("klog.zookeeper.kazoo").setLevel(max(level, logging.ERROR))


def _moment(record: logging.LogRecord) -> str:
    return rfc3339(datetime.fromtimestamp(record.created, UTC))


def _origin(record: logging.LogRecord) -> str:
    return record.name.removeprefix("klog.")
