"""A pytest plugin: how each test of a run ended and what it took, as JSON in the file that ``KLOG_TEST_REPORT`` names.

The controller of a run on several workers hears of every test; a worker writes nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

FILE = "KLOG_TEST_REPORT"


class Report:
    """What the run has told so far, by test."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_s: dict[str, float] = {}
        self.failed: dict[str, dict[str, str]] = {}
        """The first line of each failure, and the machine's load then."""
        self.skipped: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("@")[0] if "[" not in report.nodeid else _without_group(report.nodeid)
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration
        for key, value in report.user_properties:
            if key == "cpu_s":
                self.cpu_s[name] = float(value)  # type: ignore[arg-type]
        if report.failed:
            self._fail(name, report)
        elif report.skipped:
            self.skipped.add(name)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._fail(report.nodeid, report)

    def _fail(self, name: str, report: pytest.TestReport | pytest.CollectReport) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        text = crash.message if crash is not None else report.longreprtext
        line = next((one.strip() for one in text.splitlines() if one.strip()), "")
        load = f"{os.getloadavg()[0]:.1f}"
        self.failed.setdefault(name, {"line": line[:200], "load": load})

    def pytest_sessionfinish(self) -> None:
        passed = self.seconds.keys() - self.failed.keys() - self.skipped
        Path(os.environ[FILE]).write_text(
            json.dumps(
                {
                    "passed": len(passed),
                    "skipped": len(self.skipped),
                    "failed": self.failed,
                    "seconds": {name: round(value, 2) for name, value in self.seconds.items() if value >= 0.1},
                    "cpu_s": {name: round(value, 2) for name, value in self.cpu_s.items() if value >= 0.1},
                }
            )
        )


def _without_group(nodeid: str) -> str:
    """xdist appends ``@GROUP``; a parameter may have an ``@`` of its own."""
    head, bracket, tail = nodeid.rpartition("]")
    return head + bracket if tail.startswith("@") else nodeid


def pytest_configure(config: pytest.Config) -> None:
    if FILE in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Report(), "klog-run-report")
