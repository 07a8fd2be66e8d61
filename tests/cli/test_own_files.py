"""What klog writes is its user's alone: files of 0600 in folders of 0700, whatever the umask was."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.cli.shell.history import QuietHistory
from tests.broker_fixture import RunningBroker
from tests.cli.process import started


def open_to_others(folder: Path) -> list[str]:
    """The files and folders below that others may read or write."""
    return [str(one) for one in folder.rglob("*") if not one.is_symlink() and stat.S_IMODE(one.stat().st_mode) & 0o77]


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def run(*words: object, home: Path) -> None:
    with started(*map(str, words), env={**os.environ, "KLOG_HOME": str(home)}) as process:
        out, error = process.communicate(timeout=60)
        assert process.returncode == 0, (out, error)


def test_the_files_of_zookeeper(tmp_path: Path) -> None:
    folder = tmp_path / "zk"
    (folder / "data").mkdir(parents=True, mode=0o755)  # as an older klog left it
    try:
        run("zookeeper", "start", "--dir", folder, home=tmp_path)
    finally:
        run("zookeeper", "stop", "--dir", folder, home=tmp_path)
    assert (folder / "data" / "version-2").is_dir()
    assert open_to_others(folder) == []


def test_the_files_of_a_broker(broker: RunningBroker, topic: str, home: Path) -> None:
    run("topic", "create", topic, "-B", broker.bootstrap, home=home)
    data = broker.folder / "data"
    assert (data / f"{topic}-0").is_dir() and (data / "meta.properties").is_file()
    others = [str(one) for one in data.glob("*-*") if one.name != f"{topic}-0"]
    # In folders of other topics lies what other tests have written.
    assert [one for one in open_to_others(data) if str(Path(one).parent) not in others] == []


def test_the_history_of_the_shell(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("+ topic list\n")
    path.chmod(0o644)
    QuietHistory(str(path)).store_string("check")
    assert open_to_others(tmp_path) == []
