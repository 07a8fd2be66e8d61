"""What happens around every command: errors of any kind, Ctrl-C in whatever it hangs, words that are read."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from klog.admin.group_lag import LagRow
from klog.cli import arguments, error_report, interrupt, name_values, watching
from klog.cli.flags import GlobalFlags
from klog.cli.invocation import Invocation
from klog.cli.target import Target
from klog.cli.traits import Traits
from klog.errors import CannotConnect, UsageError
from klog.render import Format, Report
from klog.signals import ECHO_S
from tests.cli.process import on_terminal
from tests.cli.runner import klog
from tests.processes import ROOT
from tests.rows import each


def test_errors_of_other_makes_become_klogs() -> None:
    missing = error_report.translated(FileNotFoundError(2, "No such file", "/no/file"))
    assert missing.code == "NOT_FOUND" and "/no/file" in missing.message
    denied = error_report.translated(PermissionError(13, "Permission denied", "/root/x"))
    assert "/root/x: Permission denied" in denied.message and denied.exit_code == 1
    bug = error_report.translated(ZeroDivisionError("division by zero"))
    assert bug.code == "BUG" and "ZeroDivisionError" in bug.message and "-v" in (bug.hint or "")
    own = CannotConnect("nobody at h:1")
    assert error_report.translated(own) is own


@each("form", list(Format))
def test_an_error_in_every_format(form: Format) -> None:
    err = io.StringIO()
    error_report.show(CannotConnect("nobody at h:1"), "topic.list", form, err, target=Target("h:1", None, "flag -B"))
    text = err.getvalue()
    if form is Format.YAML:
        document = yaml.safe_load(text)
    elif form.is_structured:
        document = json.loads(text)
    else:
        assert text.startswith("klog topic list: nobody at h:1\n") and "flag -B" in text and "klog up" in text
        return
    assert document["_command"] == "topic.list"
    assert document["error"] == {
        "code": "CANNOT_CONNECT",
        "message": "nobody at h:1",
        "hint": error_report.CONNECT_HINT,
        "cluster": "h:1 (from flag -B)",
    }


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_hint_folds_at_80_columns_where_a_person_reads_it() -> None:
    hint = "words and more words to be folded, then what is pasted: `klog group rewind " + "a-long-name" * 8 + "`"
    error, person, pipe = UsageError("wrong", hint=hint), Terminal(), io.StringIO()
    for err in (person, pipe):
        error_report.show(error, "topic.list", Format.TABLE, err)
    said, *lines = person.getvalue().splitlines()
    assert said == "klog topic list: wrong" and lines[0].startswith("  hint: words")
    assert len(lines) > 1 and all(len(line) <= 80 or "`klog group rewind a-long" in line for line in lines)
    assert f"  hint: {hint}" in pipe.getvalue().splitlines()


def test_a_hint_that_is_a_command_does_not_fold() -> None:
    hint, person = "klog profile add staging -B " + "host-of-a-broker:9092," * 5, Terminal()
    error_report.show(UsageError("wrong", hint=hint), "profile.use", Format.TABLE, person)
    assert f"  hint: {hint}" in person.getvalue().splitlines()


async def test_the_last_report_of_a_watch_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "6")
    monkeypatch.setattr(sys, "stdout", Terminal())
    rows = [LagRow("g", "t", number) for number in range(9)]
    rows.append(LagRow("g", "t", 9).failed_by(UsageError("wrong")))
    looked: list[int] = []
    invocation = Invocation(GlobalFlags(), "lag", Traits(rows="klog.admin.group_lag:LagRow"))

    async def look() -> Report:
        looked.append(1)
        return invocation.report(rows)

    code = await watching.watch(invocation, look, 0.01, is_over=lambda: len(looked) == 2)
    _, cut, whole = sys.stdout.getvalue().split("\x1b[H\x1b[J")  # type: ignore[attr-defined]
    assert len(cut.splitlines()) < 6 and len(whole.splitlines()) > 10
    assert code == 1, "the row that has failed is not among those of a cut report"


def test_a_file_that_is_not_there_is_an_error_with_its_name(dead_address: str) -> None:
    ran = klog("shell", "-f", "/no/such/script", "-o", "json")
    assert ran.code == 1 and ran.error["code"] == "NOT_FOUND" and "/no/such/script" in ran.error["message"]
    ran = klog("log", "dump", "/no/such/log", "-o", "json")
    assert ran.code == 1 and "/no/such/log" in ran.error["message"]
    ran = klog("broker", "start", "--config", "/no/such/file", "-o", "json")
    assert ran.code == 1 and "/no/such/file" in ran.error["message"]


@each(
    ("line", "form"),
    [
        ("topic list -o json", Format.JSON),
        ("topic list -ojsonl --no", Format.JSONL),
        ("topic list --output=yaml", Format.YAML),
        ("topic list --output tsv", Format.TSV),
        ("tail t -o end --output jsonl", Format.JSONL),
        ("topic list -o nonsense", Format.TABLE),
        ("topic list -o", Format.TABLE),
    ],
)
def test_the_format_of_an_error_of_parsing(line: str, form: Format) -> None:
    assert error_report.format_in(line.split()) is form


@each(
    ("given", "plain"),
    [
        ("retention.ms=7d", "604800000"),
        ("retention.ms=soon", "soon"),
        ("segment.bytes=1GiB", "1073741824"),
        ("no.such.setting=7d", "7d"),
    ],
)
def test_a_topics_settings_take_durations_and_sizes(given: str, plain: str) -> None:
    name, _, _ = given.partition("=")
    assert arguments.topic_settings([given]) == {name: plain}


def test_a_brokers_settings_too() -> None:
    given = ["log.retention.ms=7d", "log.segment.bytes=1MiB", "log.file.size=2MB", "log.retention.hours=5"]
    assert arguments.broker_settings(given) == {
        "log.retention.ms": "604800000",
        "log.segment.bytes": "1048576",
        "log.file.size": "2000000",
        "log.retention.hours": "5",
    }


SHARED = st.builds(
    GlobalFlags,
    bootstrap_server=st.none() | st.just("inner"),
    zookeeper=st.none() | st.just("inner"),
    profile=st.none() | st.just("inner"),
    output=st.none() | st.sampled_from(Format),
    quiet=st.booleans(),
)


@given(inner=SHARED, bootstrap=st.none() | st.just("outer"), zookeeper=st.none() | st.just("outer"))
def test_the_clusters_of_two_levels_never_mix(inner: GlobalFlags, bootstrap: str | None, zookeeper: str | None) -> None:
    outer = GlobalFlags(bootstrap_server=bootstrap, zookeeper=zookeeper, output=Format.TSV)
    merged = inner.over(outer)
    assert len({merged.bootstrap_server, merged.zookeeper, merged.profile} - {None}) <= 1
    assert merged.output == (inner.output or Format.TSV)


def test_settings_and_assignments() -> None:
    assert name_values.settings(["a=1", "b=", "c=x=y", " d =e"]) == {"a": "1", "b": "", "c": "x=y", "d": "e"}
    assert name_values.pairs(["h=1", "h=2"]) == [("h", "1"), ("h", "2")]
    for wrong in (["a"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(UsageError):
            name_values.settings(wrong)
    assert arguments.assignment("1:2,2:3") == [[1, 2], [2, 3]]


def test_lists_of_partitions() -> None:
    assert arguments.all_partitions(["0,2", "5-7", "2", "6-8"]) == (0, 2, 5, 6, 7, 8)
    assert arguments.all_partitions(None) is None
    for wrong in ("", "a", "1-", "-1", "3-1", "1,,2", "0-99999999999", "٣"):
        with pytest.raises(UsageError):
            arguments.all_partitions([wrong])


@pytest.mark.parametrize("hanging", ["thread", "finally", "loop"])
def test_ctrl_c_ends_a_command_whatever_it_hangs_in(hanging: str) -> None:
    """A command of the test's own, hung in the three ways in which Python does not come back by itself."""
    ways = {
        "thread": "await asyncio.to_thread(time.sleep, 60)",
        "finally": "try: await asyncio.sleep(60)\n    finally: time.sleep(60)",
        "loop": "time.sleep(60)",
    }
    program = f"""
import asyncio, sys, time
from klog.cli import interrupt
from klog.cli.command import top_command
from klog.cli.invocation import Invocation

@top_command("hang", connects=False)
async def hang(invocation: Invocation) -> None:
    '''Hang.'''
    sys.stdout.write("hanging\\n"); sys.stdout.flush()
    {ways[hanging]}

interrupt.install()
hang.main([], standalone_mode=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"hanging\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130  # a third of what it hangs
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def test_a_signal_that_comes_twice_at_once_counts_once() -> None:
    """`timeout` sends it to the process and to its group; the second would end a member before it has left."""
    cancelled: list[int] = []
    with interrupt.in_shell(), interrupt.cancelling(lambda: cancelled.append(1)):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert cancelled == [1]
        interrupt._STATE.asked.first_s -= ECHO_S
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    "ask", ["typed_line(os.fdopen(os.pipe()[0]))", "typed_unseen(os.fdopen(os.openpty()[1]), 'Password: ')"]
)
def test_ctrl_c_that_wakes_nothing_ends_a_question(ask: str) -> None:
    """A read goes on where the signal came right before it, or to another thread, which a test can arrange."""
    program = f"""
import os, signal, threading
from klog.cli import interrupt

def press():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    os.kill(os.getpid(), signal.SIGINT)

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
threading.Timer(0.2, press).start()
try:
    with interrupt.in_shell(), interrupt.raising():
        interrupt.{ask}
except KeyboardInterrupt:
    print("no")
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
    )
    assert ran.stdout == "no\n", ran.stderr


def test_a_password_is_typed_twice_and_not_shown() -> None:
    words = ("user", "passwd", "alice", "-B", "127.0.0.1:1")
    with on_terminal(*words) as (process, terminal):
        terminal.wait_for("Password for alice: ")
        terminal.type("secret-1\r")
        terminal.wait_for("Once more: ")
        terminal.type("secret-2\r")
        assert process.wait(20) == 2 and "secret" not in terminal.read_to_end()
    for typed, code in (("\x03", 130), ("\x04", 1)):
        with on_terminal(*words) as (process, terminal):
            terminal.wait_for("Password for alice: ")
            terminal.type(typed)
            assert process.wait(20) == code, terminal.read_to_end()


def in_shell(line: str) -> tuple[int, str, str]:
    """``KLOG`` in the line is the command."""
    command = f"{sys.executable} -m klog"
    ran = subprocess.run(
        ["bash", "-c", line.replace("KLOG", command)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    return ran.returncode, ran.stdout, ran.stderr


def test_output_that_cannot_be_written_is_a_failure_that_says_so() -> None:
    code, _, err = in_shell("KLOG completion bash > /dev/full")
    full = os.strerror(errno.ENOSPC)
    assert code == 1 and full in err and "Traceback" not in err and "ignored" not in err
    code, _, err = in_shell("KLOG zookeeper status -o json > /dev/full")
    assert code == 1 and full in err and "Exception" not in err


def test_closed_streams_and_pipes_are_no_trouble() -> None:
    assert in_shell("KLOG completion bash <&- | wc -l")[1].strip() != "0"
    assert in_shell("KLOG topic nonsense 2>&-")[0] == 2
    for line in ("KLOG --help | head -n 1", "KLOG topic nonsense 2>&1 | true"):
        code, _, err = in_shell(f"set -o pipefail; {line}")
        assert code == (2 if "nonsense" in line else 0) and err == ""


def test_names_that_are_no_utf_8_are_shown_somehow() -> None:
    code, _, err = in_shell("LC_ALL=C KLOG log dump $'/no/such/\\xff\\xc3\\xa9'")
    assert code == 1 and "/no/such/" in err and "Traceback" not in err
