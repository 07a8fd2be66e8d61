"""`scripts/figure3 --small`: the counts of every tier, and that nothing outlives it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.processes import ROOT
from tests.spark.quick_java import spark_environment
from tests.until import until
from tests.zookeeper_fixture import klog_home

pytestmark = pytest.mark.timeout(900)

PROCESSES_END_S = 300.0


def with_folder(folder: Path) -> list[int]:
    """The processes that have a folder in their command lines."""
    found = psutil.process_iter(["cmdline", "pid"])
    return [one.info["pid"] for one in found if any(str(folder) in word for word in one.info["cmdline"] or ())]


@contextmanager
def started(*words: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """What `scripts/figure3` runs."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.figure3", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | spark_environment() | {"KLOG_HOME": str(klog_home()), **environment},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_with(stream: object, text: bytes) -> str:
    for line in stream:  # type: ignore[attr-defined]
        if text in line:
            return str(line, "utf-8")
    raise AssertionError(f"{text!r} did not come")


SEED = 139
"""Its first fault is a killed broker, after 1.0 s."""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long("all of Figure 3, with a fault")
def test_each_message_is_in_each_tier_once_after_a_fault(tmp_path: Path) -> None:
    folder, page = tmp_path / "all", tmp_path / "page.html"
    words = ("--small", "--dir", str(folder), "--to", str(page), "--chaos", "0.05", "--seed", str(SEED))
    with started(*words, "-o", "json") as demo:
        assert demo.stderr is not None and demo.stdout is not None
        address = line_with(demo.stderr, b"the page: ").split()[-1]
        line_with(demo.stderr, b"ready after")
        with urllib.request.urlopen(address, timeout=120) as answer:
            served = answer.read().decode()
        out, errors = demo.communicate()
    assert demo.returncode == 0, errors.decode()
    assert b"kill broker: " in errors
    rows = json.loads(out)["rows"]
    assert [row["tier"] for row in rows] == ["live", "offline", "table"]
    sent = rows[0]["sent"]
    assert sent > 200
    for row in rows:
        assert (row["sent"], row["messages"], row["missing"], row["extra"], row["state"]) == (sent, sent, 0, 0, "ok")
        assert 0 <= row["p50_ms"] <= row["p99_ms"] <= row["worst_ms"]
    assert 'http-equiv="refresh"' in served and "offline cluster" in served
    assert re.search(r"<td>table</td><td>" + str(sent), page.read_text("utf-8"))
    until(lambda: not with_folder(tmp_path), timeout_s=PROCESSES_END_S)


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with started("--dir", str(tmp_path)) as refused:
        _, errors = refused.communicate()
    assert refused.returncode == 2 and b"not empty" in errors
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long("all of Figure 3, to be killed")
def test_nothing_is_left_after_a_kill(tmp_path: Path) -> None:
    """The temporary folder included."""
    with started("--small", TMPDIR=str(tmp_path)) as demo:
        line_with(demo.stderr, b"front ends find")
        assert len(with_folder(tmp_path)) > 4
        demo.send_signal(signal.SIGKILL)
        demo.wait()
    until(lambda: not with_folder(tmp_path), timeout_s=PROCESSES_END_S)
    assert list(tmp_path.glob("klog-figure3-*")) == []
