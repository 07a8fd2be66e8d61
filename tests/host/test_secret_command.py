"""Secrets that a command prints."""

from __future__ import annotations

import sys
import time

import pytest

from klog.host.secret_command import SECRET_BYTES_MAX, SecretUnavailable, secret_from
from tests.rows import each


def printed(program: str, timeout_s: float = 10.0) -> str:
    return secret_from([sys.executable, "-c", program], "the password", timeout_s)


def test_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert printed("import sys; print('pass word'); print('touch the key', file=sys.stderr)") == "pass word"
    assert printed("print('a', end='')") == "a"
    assert printed("print(' b ', end='\\r\\n')") == " b "
    assert capfd.readouterr() == ("", "touch the key\n")


def test_there_is_no_shell_and_no_input() -> None:
    assert secret_from(["echo", "$HOME; echo `id`"], "the password", 10) == "$HOME; echo `id`"
    assert printed("import sys; print(len(sys.stdin.read()))") == "0"


@each(
    ("program", "named"),
    [
        ("print('planted'); raise SystemExit(3)", "status 3"),
        ("import os; print('planted', flush=True); os.kill(os.getpid(), 9)", "signal 9"),
        ("", "one line"),
        ("print()", "one line"),
        ("print('planted\\nplanted')", "one line"),
        ("import sys; sys.stdout.buffer.write(b'planted\\xff')", "UTF-8"),
        (f"print('planted' * {SECRET_BYTES_MAX})", str(SECRET_BYTES_MAX)),
        ("while True: print('planted' * 1000)", str(SECRET_BYTES_MAX)),
    ],
)
def test_what_is_no_secret_is_not_shown(program: str, named: str) -> None:
    with pytest.raises(SecretUnavailable) as caught:
        printed(program)
    assert (
        named in caught.value.message
        and "planted" not in f"{caught.value!r} {caught.value.__notes__ if caught.value.hint else ''}"
    )


@each("command", [["/no/such/command"], ["/etc/passwd"], ["a\0b"]])
def test_what_cannot_be_started(command: list[str]) -> None:
    with pytest.raises(SecretUnavailable):
        secret_from(command, "the password", 10)


@each(
    "program", ["import time; time.sleep(60)", "import os, time; os.close(1); time.sleep(60)"], ids=["silent", "closed"]
)
def test_a_command_has_a_time_limit(program: str) -> None:
    began_s = time.monotonic()
    with pytest.raises(SecretUnavailable, match="within"):
        printed(program, 0.3)
    assert time.monotonic() - began_s < 10
