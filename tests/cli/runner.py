"""Command lines run inside the test's process, as typer's CliRunner does it, through klog's own root."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from typer.testing import CliRunner

from klog.admin.acts import list_acts
from klog.cli.root import root
from klog.coordination.zookeeper import ZooKeeper
from klog.render.values import rfc3339


@dataclass(frozen=True)
class Ran:
    """How a command line ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def error(self) -> dict[str, Any]:
        """The JSON envelope's error."""
        error: dict[str, Any] = json.loads(self.stderr)["error"]
        return error

    @property
    def about(self) -> dict[str, Any]:
        """What ``-o json`` says beside the rows."""
        about: dict[str, Any] = json.loads(self.stdout)
        return about

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of ``-o json``."""
        assert self.stdout, (self.code, self.stderr)
        rows: list[dict[str, Any]] = json.loads(self.stdout)["rows"]
        return rows


def act_rows(zookeeper: str, **of: str) -> list[dict[str, Any]]:
    """The acts that ZooKeeper has, the oldest first, as `klog events ACT` shows each; ``of`` a ``topic`` or a group."""
    subjects = {" ".join(one) for one in of.items()}
    with ZooKeeper(zookeeper) as session:
        session.start()
        return [
            asdict(one) | {"time": rfc3339(one.time)} for one in list_acts(session) if not of or one.subject in subjects
        ]


@contextmanager
def logging_as_before() -> Iterator[None]:
    """A command sets logging up for its process; the test's own goes on as it was."""
    loggers = [logging.getLogger(name) for name in (None, "klog")]
    before = [(one, one.handlers[:], one.level, one.propagate) for one in loggers]
    try:
        yield
    finally:
        for one, handlers, level, propagate in before:
            one.handlers[:] = handlers
            one.setLevel(level)
            one.propagate = propagate


def events_are_told(*at: object) -> bool:
    """Brokers make the topic of events some seconds after their start."""
    return klog("topic", "describe", "klog.events", *at).code == 0


def klog(*words: object, input: str | bytes = b"", env: dict[str, str | None] | None = None) -> Ran:
    """Run ``klog WORDS``; stdin is ``input`` and no terminal."""
    code, stdout, stderr = written(*words, input=input, env=env)
    return Ran(code, stdout.decode(), stderr.decode())


def written(
    *words: object, input: str | bytes = b"", env: dict[str, str | None] | None = None
) -> tuple[int, bytes, bytes]:
    """The same, with output that is no text: exit code, stdout, stderr."""
    with CliRunner().isolation(input=input, env=env or {}) as (stdout, stderr, _):
        import sys

        with logging_as_before():
            code = root().execute([str(word) for word in words])
        sys.stdout.flush()
        sys.stderr.flush()
        return code, stdout.getvalue(), stderr.getvalue()
