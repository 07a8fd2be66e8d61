"""What is imported when, and how long the two quickest commands take beside Python itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from klog.cli.command_table import ENTRIES

HEAVY = {
    *("pyspark", "kazoo", "prompt_toolkit", "pydantic", "kio", "rich", "asyncio"),
    *("confluent_kafka", "pyarrow", "yaml"),
}
NOUNS = {entry.module for entry in ENTRIES}


def modules_after(code: str) -> set[str]:
    """The top-level modules, and klog's own, that are loaded after ``code``."""
    program = f"import sys\n{code}\nsys.stderr.write(' '.join(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(ran.stderr.split())


def modules_after_run(*lines: list[str]) -> set[str]:
    """The modules that are loaded once ``klog`` has run with each of the lines, its own output thrown away."""
    return modules_after(
        "from klog.cli.root import run\n"
        "real, kept = sys.stderr, []\n"  # else they would be closed below what `run` puts in their place
        f"for arguments in {lines!r}:\n"
        "    sys.stdout, sys.stderr = open('/dev/null', 'w'), open('/dev/null', 'w')\n"
        "    kept += [sys.stdout, sys.stderr]\n"
        "    run(arguments)\n"
        "sys.stderr = real"
    )


def test_the_root_loads_no_noun_and_nothing_heavy() -> None:
    loaded = modules_after_run(["--help"], ["topci"], [])
    assert not loaded & HEAVY
    assert not loaded & NOUNS


def test_help_of_a_noun_loads_that_noun_and_no_verbs_behind_it() -> None:
    loaded = modules_after_run(["topic", "--help"])
    assert loaded & NOUNS == {"klog.cli.topic"}
    assert not loaded & (HEAVY - {"asyncio"})


def test_what_needs_no_event_loop_imports_none() -> None:
    """`klog up` is to be acknowledged within a second, and these two alone are 0.3 s of it."""
    loaded = modules_after_run(["up", "--help"], ["down"], ["log", "dump", "/no/such/file"])
    assert not loaded & {"asyncio", "kio", "pydantic", "pyspark", "prompt_toolkit", "rich"}


def test_import_klog_is_light() -> None:
    loaded = modules_after("import klog")
    assert not loaded & {*HEAVY, "typer"}


def test_a_command_converts_its_words_without_pydantic() -> None:
    loaded = modules_after_run(["topic", "list", "-B", "127.0.0.1:1", "--timeout", "1s", "-o", "json"])
    assert "klog.cli.topic" in loaded
    assert not loaded & {"pyspark", "kazoo", "prompt_toolkit", "pydantic", "rich"}


@pytest.mark.timed
@pytest.mark.parametrize(("argument", "limit_s"), [("--version", 0.15), ("--help", 0.3)])
def test_the_quickest_commands_are_quick(argument: str, limit_s: float) -> None:
    """By the processor time they take, the best of several: the clock would measure what else the machine does."""

    def processor_s() -> float:
        process = subprocess.Popen([sys.executable, "-m", "klog", argument], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return used.ru_utime + used.ru_stime

    assert min(processor_s() for _ in range(5)) < limit_s
