"""`scripts/land` moves main to what has passed whole, and to nothing else; `tests/run.py` says what has passed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import run

ROOT = Path(__file__).resolve().parents[2]

STUB = """#!/usr/bin/env bash
set -e
mkdir -p build .venv/bin
ln -sf {python} .venv/bin/python
printf '{{"green": true, "clean": %s, "commit": "%s", "tier": "default", "names": {{"unsteady": [%s]}}}}' \\
  "$(cat clean)" "$(git rev-parse HEAD)" "$(cat unsteady)" > build/test-run.json
exit "$(cat code)"
"""


class Project:
    """A repository with `scripts/land` and a `scripts/test` whose outcome is in three files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "scripts").mkdir(parents=True)
        (folder / "tests").mkdir()
        shutil.copy(ROOT / "scripts" / "land", folder / "scripts" / "land")
        (folder / "scripts" / "test").write_text(STUB.format(python=sys.executable))
        (folder / "scripts" / "test").chmod(0o755)
        (folder / "tests" / "unsteady.md").write_text("| `tests/a.py::test_b` | 2026-01-01 | 1.0 | x | |\n")
        (folder / ".gitignore").write_text("build/\n.venv/\n")
        self.git("init", "-q", "-b", "main")
        self.commit(code="0")
        self.git("switch", "-q", "-c", "work")

    def git(self, *words: str) -> str:
        names = ["-c", "user.name=klog", "-c", "user.email=klog@localhost"]
        done = subprocess.run(["git", *names, *words], cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, *, code: str, clean: str = "true", unsteady: str = "") -> str:
        for name, text in (("code", code), ("clean", clean), ("unsteady", unsteady)):
            (self.folder / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "test: outcome")
        return self.git("rev-parse", "HEAD")

    def land(self) -> int:
        environment = {**os.environ, "TMPDIR": str(self.folder.parent)}
        return subprocess.run(["scripts/land"], cwd=self.folder, env=environment, check=False).returncode


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def test_main_moves_to_a_commit_that_has_passed(project: Project) -> None:
    wanted = project.commit(code="0", unsteady='"tests/a.py::test_other"')
    assert project.land() == 0
    assert project.git("rev-parse", "main") == wanted
    record = json.loads((project.folder / "build" / "test-run.json").read_text())
    assert (record["commit"], record["green"], record["clean"]) == (wanted, True, True)


@pytest.mark.parametrize(
    "outcome",
    [
        {"code": "1"},
        {"code": "0", "clean": "false"},
        {"code": "0", "unsteady": '"tests/a.py::test_b"'},  # it is in unsteady.md already
    ],
    ids=["red", "with changes", "unsteady twice"],
)
def test_main_stays(project: Project, outcome: dict[str, str]) -> None:
    before = project.git("rev-parse", "main")
    project.commit(**outcome)
    assert project.land() == 1
    assert project.git("rev-parse", "main") == before


def test_main_moves_forward_only_and_not_under_ones_feet(project: Project) -> None:
    project.git("switch", "-q", "main")
    assert project.land() == 1, "nothing to land"
    project.commit(code="0")
    project.git("switch", "-q", "work")
    project.commit(code="0")
    assert project.land() == 1, "main has what this lacks"
    project.git("rebase", "-q", "-X", "ours", "main")
    project.git("switch", "-q", "main")
    before = project.git("rev-parse", "main")
    done = subprocess.run(["scripts/land", "work"], cwd=project.folder, check=False)
    assert (done.returncode, project.git("rev-parse", "main")) == (1, before), "it is checked out"


TESTS = """
from pathlib import Path
import pytest
def test_good(): pass
@pytest.mark.parametrize("one", ["a@b"])
def test_steady_failure(one): assert one == "c", "always"
def test_fails_once():
    mark = Path(__file__).with_name("mark")
    if not mark.exists():
        mark.touch()
        raise AssertionError("the first time")
@pytest.mark.skip(reason="as it is")
def test_skipped(): pass
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """In this checkout, as every test is: pytest names others by paths that it does not find again."""
    made = ROOT / "build" / f"small-{os.getpid()}"
    made.mkdir(parents=True)
    yield made
    shutil.rmtree(made)


@pytest.mark.long("runs pytest five times")
def test_what_fails_runs_again_alone(folder: Path, tmp_path: Path) -> None:
    path = folder / "test_small.py"
    path.write_text(TESTS)
    code, told = run.run_pytest(tmp_path / "report.json", "-p", "no:cacheprovider", "-n", "1", str(path))
    failed = {name.rpartition("::")[2]: found["line"] for name, found in told["failed"].items()}
    assert code == 1
    assert (told["passed"], told["skipped"]) == (1, 1)
    assert {name: "first time" in line for name, line in failed.items()} == {
        "test_steady_failure[a@b]": False,
        "test_fails_once": True,
    }
    assert {name.rpartition("::")[2] for name in run.run_again(told["failed"])} == {"test_steady_failure[a@b]"}


def test_a_run_is_red_for_what_fails_twice_and_for_chance_where_there_is_none() -> None:
    some = [f"tests/cluster/test_a.py::test_{number}" for number in range(run.UNSTEADY_MAX + 1)]
    assert run.red_for(set(), some[1:]) == []
    assert run.red_for(set(), some)
    assert run.red_for({"tests/cli/test_a.py::test_b"}, [])
    for room in ("rules", "crash", "replication", "storage", "record", "simulation"):
        assert (ROOT / "tests" / room).is_dir()
        assert run.red_for(set(), [f"tests/{room}/test_a.py::test_b"])


def test_durations_are_kept_longest_first() -> None:
    text = run.durations_text({"a": 0.1, "b[x y]": 0.6, "c": 71.24})
    assert list(json.loads(text).items()) == [("c", 71.2), ("b[x y]", 0.6)]
