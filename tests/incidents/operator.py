"""The operator of an incident: looks, asks why, mends and takes back, by klog alone.

What the runbook advises is run by `runbook` and `start`, with the line as docs/runbook.md has it: `test_runbook` looks
whether each line is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from klog.cli.root import walk
from tests.cli.runner import Ran, act_rows, klog
from tests.cluster_fixture import RunningCluster

Rows = list[dict[str, Any]]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "runbook.md"
COMMANDS = dict(walk())


@cache
def runbook_lines() -> frozenset[str]:
    """The command lines of the runbook: code in its text, and the lines of its blocks without their comments."""
    page = PAGE.read_text()
    blocks = re.findall(r"^```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```\n.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    lines = [line.partition("#") for block in blocks for line in block.splitlines()]
    texts = [text, *(comment for _, _, comment in lines)]
    found = [re.sub(r"\s+", " ", code) for one in texts for code in re.findall(r"`([^`]+)`", one)]
    found += [line.strip() for line, _, _ in lines]
    return frozenset(line for line in found if line.startswith(("klog ", "kill ")))


class Operator:
    """Runs command lines against a cluster, by the addresses of all its brokers: some may be down."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.cluster = cluster
        self.bootstrap = ",".join(one.bootstrap for one in cluster.brokers.values())

    def run(self, *words: object, input: str = "") -> Ran:
        """A command line, with JSON where it reports rows."""
        return klog(*words, "-B", self.bootstrap, "-o", "json", input=input)

    def runbook(self, line: str, *more: str, **names: object) -> Ran:
        """A line of the runbook, with the test's own names in place of some, and ``more`` flags that it speaks of."""
        assert line in runbook_lines(), line
        if names:
            one_of = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
            line = re.sub(rf"(?<![\w-])(?:{one_of})(?!\w)", lambda found: str(names[found[0]]), line)
        words = [*shlex.split(line)[1:], *more]
        command = next(found for size in (2, 1) if (found := COMMANDS.get(tuple(words[:size]))) is not None)
        flags = ["--yes"] if command.traits.asks and "--dry-run" not in words else []
        if command.traits.rows is not None:
            flags += ["--output", "json"]
        ran = klog(*words, *flags, "-B", self.bootstrap)
        assert ran.code == 0 or words[0] in ("status", "partition"), (words, ran)  # 1: there is trouble
        return ran

    def start(self, line: str, broker_id: int) -> None:
        """The runbook's `klog broker start`, with the options that the broker had, as a process of its own."""
        assert line in runbook_lines() and line == "klog broker start"
        self.cluster.start(broker_id)

    def rows(self, *words: object) -> Rows:
        """The rows of a command that ends with 0."""
        ran = self.run(*words)
        assert ran.code == 0, ran
        return ran.rows

    def text(self, *words: object, input: str | bytes = "") -> str:
        """What a command that ends with 0 writes to stdout."""
        ran = klog(*words, "-B", self.bootstrap, input=input)
        assert ran.code == 0, ran
        return ran.stdout

    def values(self, topic: str) -> list[str]:
        """All messages of a topic."""
        return self.text("tail", topic, "-o", "start", "-e").splitlines()

    def cause(self, *subject: object, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The cause that `klog status` finds, as soon as it is the expected one: the cluster notices after a time."""
        found: list[dict[str, Any]] = []
        last = Ran(0, "", "")

        def is_found() -> bool:
            nonlocal last
            last = self.run("status", *subject)
            found[:] = last.rows[-1:] if last.code == 1 and last.stdout else []
            return bool(found) and until(found[0])

        try:
            self.cluster.wait_until(is_found, "klog status finds the cause")
        except AssertionError as error:
            raise AssertionError(f"klog status {subject}: {last}") from error
        return found[0]

    def event(
        self, line: str, kind: str, until: Callable[[dict[str, Any]], bool] = lambda row: True, **names: object
    ) -> dict[str, Any]:
        """The last event of a kind that a line of the runbook shows, as soon as it is there: acts are published."""
        found: list[dict[str, Any]] = []

        def is_told() -> bool:
            rows = self.runbook(line, **names).rows
            found[:] = [row for row in rows if row["kind"] == kind and until(row)]
            return bool(found)

        self.cluster.wait_until(is_told, line)
        return found[-1]

    def act(self, **wanted: object) -> dict[str, Any]:
        """The last act that has these columns."""
        rows = [row for row in act_rows(self.cluster.zookeeper) if wanted.items() <= row.items()]
        assert rows, f"no act has {wanted}"
        return rows[-1]

    def undo(self, act: dict[str, Any]) -> None:
        assert self.run("undo", act["act"], "--yes").code == 0
