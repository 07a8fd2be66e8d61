"""Completion as a shell asks for it: static words, topics from the cache, and silence where anything is wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from klog.cli.name_cache import SUBJECTS, remember, remember_acts, remember_more, remember_topics
from klog.cli.root import walk
from klog.cli.target import Target
from tests.cli.runner import klog
from tests.processes import KLOG, ROOT
from tests.rows import each


def offered(line: str, **environment: str) -> tuple[list[str], str]:
    """What bash would be offered at the end of ``line``, and what was printed besides."""
    ran = klog(env=asked(line, **environment))
    return ran.stdout.split(), ran.stderr


def asked(line: str, **environment: str) -> dict[str, str]:
    """What bash's function says to klog by the environment."""
    at = len(line.split(" ")) - 1
    return {"_KLOG_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(at), **environment}


def test_a_process_of_its_own_answers_as_one_that_runs() -> None:
    """As a shell starts it, at each press of the key."""
    remember_topics(Target("here:1", None, "test"), {"payments": 1})
    for line in ("klog topi", "klog tail pa"):
        environment = asked(line, KLOG_BOOTSTRAP_SERVER="here:1")
        ran = subprocess.run(
            KLOG, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=60
        )
        assert (ran.stdout.split(), ran.stderr) == offered(line, KLOG_BOOTSTRAP_SERVER="here:1") != ([], "")


def test_words_of_the_tree() -> None:
    assert set(offered("klog topic ")[0]) == {
        verb for noun, *verbs in dict(walk()) for verb in verbs if noun == "topic"
    }
    assert "--under-replicated" in offered("klog topic describe --und")[0]
    assert "log.retention.hours=" in offered("klog broker start -X log.ret")[0]


def test_topics_of_the_cluster_that_is_meant_and_of_no_other() -> None:
    remember_topics(Target("here:1", None, "test"), {"payments": 1, "logs": 1})
    remember_topics(Target("there:1", None, "test"), {"other": 1})
    assert offered("klog tail pa", KLOG_BOOTSTRAP_SERVER="here:1") == (["payments"], "")
    assert offered("klog tail -B there:1 ", KLOG_BOOTSTRAP_SERVER="here:1") == (["other"], "")
    assert offered("klog tail ", KLOG_BOOTSTRAP_SERVER="unknown:1") == ([], "")


PARTITIONS = ["logs-0", "payments-0", "payments-1"]
OFFERED: list[tuple[str, list[str]]] = [
    ("klog topi", ["topic"]),
    ("klog topics li", ["list"]),
    ("klog topic list -o js", ["json", "jsonl"]),
    ("klog topic describe pa", ["payments"]),
    ("klog tail -B there:1 ", ["other"]),
    ("klog lag pay", ["pay-readers"]),
    ("klog lag -t pay", ["payments"]),
    ("klog offset export ", ["others", "pay-readers"]),
    ("klog broker stop ", ["1", "12", "2"]),
    ("klog broker restart 1", ["1", "12"]),
    ("klog metrics --broker 1", ["1", "12"]),
    ("klog reassign plan --brokers 1,2", ["1,2"]),
    ("klog broker start --id ", []),
    ("klog undo mif", ["mifz3k2b0000", "mifz3k2a9x4q"]),
    ("klog zk get /brokers/ids/", ["/brokers/ids/1", "/brokers/ids/12"]),
    ("klog zk get /brokers/i", ["/brokers/ids"]),
    ("klog zk get /mi", ["/mine"]),
    ("klog zk ls /brok", ["/brokers"]),
    ("klog topic elect ", ["logs", "payments", *PARTITIONS]),
    ("klog topic elect logs payments-", PARTITIONS[1:]),
    ("klog topic restore ", ["deleted"]),
    ("klog status ", [*SUBJECTS, "logs", "payments", "others", "pay-readers", "1", "12", "2", *PARTITIONS]),
    ("klog status topic ", ["logs", "payments"]),
    ("klog status partition ", PARTITIONS),
    ("klog status message pay", PARTITIONS[1:]),
    ("klog status group ", ["others", "pay-readers"]),
    ("klog status broker ", ["1", "12", "2"]),
    ("klog status topic logs ", []),
    ("klog --profile ", ["prod"]),
    ("klog topic list --profile pro", ["prod"]),
    ("klog --profile prod topic describe ", ["other"]),
    ("klog -B here:1 --profile prod topic describe ", []),
    ("klog -o jsonl -B there:1 tail ", ["other"]),
    ("klog topic config t retention.", ["retention.bytes=", "retention.ms="]),
    ("klog produce t -X comp", []),
    ("klog tail t -o st", ["start"]),
    ("klog group rewind g --to @-", ["@-10m", "@-1h", "@-1d"]),
    ("klog log dump /tm", []),
    ("klog events --kind broker-", ["broker-down", "broker-up"]),
]
"""Lines, and what a shell offers at their ends, by the names below."""


def remember_names(home: Path) -> None:
    """Those of the cluster here:1, and some of there:1, which is that of the profile prod."""
    here = Target("here:1", None, "test")
    remember_topics(here, {"payments": 2, "logs": 1})
    remember_topics(Target("there:1", None, "test"), {"other": 1})
    remember(here, "trash", ["deleted"])
    remember(here, "groups", ["pay-readers", "others"])
    remember(here, "brokers", [1, 2, 12])
    remember_acts(here, {"mifz3k2a9x4q": "topic-settings of topic payments", "mifz3k2b0000": "offsets of group a"})
    remember_more(here, "znodes", ["/brokers/ids/1", "/brokers/ids/12"])
    remember_more(here, "znodes", ["/mine", "/mine/too"])
    (home / "profiles.toml").write_text('[prod]\nbootstrap_server = "there:1"\n')


@each(("line", "expected"), OFFERED)
def test_what_is_offered(home: Path, line: str, expected: list[str]) -> None:
    remember_names(home)
    assert offered(line, KLOG_BOOTSTRAP_SERVER="here:1") == (expected, "")


def test_deleted_topics() -> None:
    here, at = Target("here:1", None, "test"), {"KLOG_BOOTSTRAP_SERVER": "here:1"}
    remember(here, "trash", ["old"])
    remember_more(here, "trash", ["older"])
    assert offered("klog topic restore ", **at) == (["old", "older"], "")
    remember(here, "trash", ["older"])
    assert offered("klog topic restore ", **at) == (["older"], "")


@each("damage", ["{", '{"a": 1}', "[1, 2]", "\0"])
def test_a_damaged_cache_offers_nothing_and_prints_nothing(home: Path, damage: str) -> None:
    remember_topics(Target("here:1", None, "test"), {"payments": 1})
    for cache in (home / "cache").iterdir():
        cache.write_text(damage)
    assert offered("klog tail p", KLOG_BOOTSTRAP_SERVER="here:1") == ([], "")
    assert offered("klog topic elect p", KLOG_BOOTSTRAP_SERVER="here:1") == ([], "")


def test_a_home_that_cannot_be_written_is_no_error(home: Path) -> None:
    home.write_text("a file, no folder")
    remember_topics(Target("here:1", None, "test"), {"payments": 1})
    assert offered("klog tail p", KLOG_BOOTSTRAP_SERVER="here:1") == ([], "")


def test_scripts_for_each_shell() -> None:
    for shell in ("bash", "zsh", "fish"):
        ran = klog("completion", shell)
        assert ran.code == 0 and "_KLOG_COMPLETE" in ran.stdout
    assert klog("completion", "csh").code == 2


SHELLS = {
    "bash": "source {script}; COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _klog_completion klog; "
    'printf "%s\\n" "${{COMPREPLY[@]}}"',
    "zsh": "compdef() {{ }}; _files() {{ }}; "
    "_arguments() {{ print -r -- $1 | grep -oE '[( ]\"[^\"]*\"' | tr -d ' (\"' }}; "
    "source {script}; words=({line}); CURRENT=${{#words}}; _klog_completion",
    "fish": "source {script}; complete -C '{line}' | string split -f1 \\t",
}
"""How each real shell is made to complete a line without a terminal."""


def check_shell(shell: str, folder: Path, home: Path, cases: list[tuple[str, list[str]]]) -> None:
    """That a real shell offers for each line what it should, without a word on stderr."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    remember_names(home)
    script = folder / f"klog.{shell}"
    script.write_text(klog("completion", shell).stdout)
    shim = folder / "klog"
    shim.write_text(f'#!/bin/sh\nexec {KLOG[0]} -m klog "$@"\n')
    shim.chmod(0o755)
    for line, expected in cases:
        typed = f"{line}''" if line.endswith(" ") and shell != "fish" else line  # an empty word is one of the array
        program = SHELLS[shell].format(script=script, line=typed, folder=folder)
        ran = subprocess.run(
            [shell, "-c", program],
            cwd=ROOT,
            env={
                **os.environ,
                "PATH": f"{folder}:{os.environ['PATH']}",
                "KLOG_BOOTSTRAP_SERVER": "here:1",
                "HOME": str(folder),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (sorted(ran.stdout.split()), ran.stderr) == (sorted(expected), ""), (shell, line, ran)


def test_bash_completes_a_line(tmp_path: Path, home: Path) -> None:
    cases = [case for case in OFFERED if case[0] in ("klog lag pay", "klog status partition ")]
    check_shell("bash", tmp_path, home, cases)


@pytest.mark.long("each line in real bash, zsh and fish: a cold start for each")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_completes(shell: str, tmp_path: Path, home: Path) -> None:
    check_shell(shell, tmp_path, home, [case for case in OFFERED if case[1]])
