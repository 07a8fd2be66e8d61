"""Completion as a shell asks for it: static words, topics from the cache, and silence where anything is wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from klog.cli.name_cache import remember_groups, remember_topics
from klog.cli.target import Target
from tests.cli.process import KLOG, ROOT
from tests.cli.runner import klog


def offered(line: str, **environment: str) -> tuple[list[str], str]:
    """What bash would be offered at the end of ``line``, and what was printed besides."""
    words = line.split(" ")
    ran = subprocess.run(
        KLOG,
        cwd=ROOT,
        env={
            **os.environ,
            "_KLOG_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return ran.stdout.split(), ran.stderr


def test_words_of_the_tree() -> None:
    assert offered("klog topi") == (["topic"], "")
    assert set(offered("klog topic ")[0]) == {
        "create",
        "list",
        "describe",
        "alter",
        "config",
        "delete",
        "trash",
        "restore",
    }
    assert "--under-replicated" in offered("klog partition list --und")[0]
    assert offered("klog topics li") == (["list"], "")
    assert offered("klog topic list -o js") == (["json", "jsonl"], "")


def test_topics_of_the_cluster_that_is_meant_and_of_no_other() -> None:
    remember_topics(Target("here:1", None, "test"), ["payments", "logs"])
    remember_topics(Target("there:1", None, "test"), ["other"])
    assert offered("klog tail pa", KLOG_BOOTSTRAP_SERVER="here:1") == (["payments"], "")
    assert offered("klog tail -B there:1 ", KLOG_BOOTSTRAP_SERVER="here:1") == (["other"], "")
    assert offered("klog tail ", KLOG_BOOTSTRAP_SERVER="unknown:1") == ([], "")


def test_groups_are_remembered_beside_topics() -> None:
    remember_topics(Target("here:1", None, "test"), ["payments"])
    remember_groups(Target("here:1", None, "test"), ["pay-readers", "others"])
    assert offered("klog group lag pay", KLOG_BOOTSTRAP_SERVER="here:1") == (["pay-readers"], "")
    assert offered("klog offset export ", KLOG_BOOTSTRAP_SERVER="here:1") == (["others", "pay-readers"], "")
    assert offered("klog group lag -t pay", KLOG_BOOTSTRAP_SERVER="here:1") == (["payments"], "")


@pytest.mark.parametrize("damage", ["{", '{"a": 1}', "[1, 2]", "\0"])
def test_a_damaged_cache_offers_nothing_and_prints_nothing(home: Path, damage: str) -> None:
    remember_topics(Target("here:1", None, "test"), ["payments"])
    (cache,) = (home / "cache").iterdir()
    cache.write_text(damage)
    assert offered("klog tail p", KLOG_BOOTSTRAP_SERVER="here:1") == ([], "")


def test_a_home_that_cannot_be_written_is_no_error(home: Path) -> None:
    home.write_text("a file, no folder")
    remember_topics(Target("here:1", None, "test"), ["payments"])
    assert offered("klog tail p", KLOG_BOOTSTRAP_SERVER="here:1") == ([], "")


def test_scripts_for_each_shell() -> None:
    for shell in ("bash", "zsh", "fish"):
        ran = klog("completion", shell)
        assert ran.code == 0 and "_KLOG_COMPLETE" in ran.stdout
    assert klog("completion", "csh").code == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_takes_the_script(tmp_path: Path) -> None:
    script = tmp_path / "klog.bash"
    script.write_text(klog("completion", "bash").stdout)
    shim = tmp_path / "klog"
    shim.write_text(f'#!/bin/sh\nexec {KLOG[0]} -m klog "$@"\n')
    shim.chmod(0o755)
    line = 'COMP_WORDS=(klog topi); COMP_CWORD=1; _klog_completion klog; echo "${COMPREPLY[@]}"'
    ran = subprocess.run(
        ["bash", "-c", f"source {script}; {line}"],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.stdout.strip(), ran.stderr) == ("topic", "")
