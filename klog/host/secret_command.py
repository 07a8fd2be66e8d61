"""Secrets from a command's output: ``pass show kafka``, ``keyring get klog alice``.

The command gets no shell and no input, and has a time limit. It inherits stderr, for prompts and errors. Its output is
in no error and no log.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from typing import IO, Final

from klog.errors import KlogError

SECRET_BYTES_MAX: Final = 64 * 1024


class SecretUnavailable(KlogError, code="SECRET_UNAVAILABLE"):
    """A command has printed no secret."""


def secret_from(command: Sequence[str], what: str, timeout_s: float) -> str:
    """The command's output without the end of the line. ``what`` names it in errors. Raises SecretUnavailable."""
    said = f"{what}, from the command {command[0]!r}"
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SecretUnavailable(f"{said}: it cannot be started: {reason}") from None
    assert process.stdout is not None
    try:
        printed = _read(process.stdout, time.monotonic() + timeout_s)
        if printed is None:
            raise SecretUnavailable(f"{said}: it has not ended within {timeout_s:g} s")
        if len(printed) > SECRET_BYTES_MAX:
            raise SecretUnavailable(f"{said}: it prints more than {SECRET_BYTES_MAX} bytes")
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise SecretUnavailable(f"{said}: it has not ended within {timeout_s:g} s") from None
    finally:
        process.stdout.close()
        if process.poll() is None:
            process.kill()
            process.wait()
    if status:
        ended = f"with status {status}" if status > 0 else f"by signal {-status}"
        raise SecretUnavailable(f"{said}: it has ended {ended}", hint="what it says itself is above, on stderr")
    try:
        secret = printed.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecretUnavailable(f"{said}: what it prints is not UTF-8") from None
    if not secret or "\n" in secret or "\0" in secret:
        raise SecretUnavailable(f"{said}: expected one line, got {'none' if not secret else 'more'}")
    return secret


def _read(pipe: IO[bytes], until_s: float) -> bytes | None:
    """All output, or slightly more than SECRET_BYTES_MAX of it; None when the time is over."""
    printed = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while len(printed) <= SECRET_BYTES_MAX:
            if not selector.select(max(until_s - time.monotonic(), 0)):
                return None
            piece = os.read(pipe.fileno(), SECRET_BYTES_MAX)
            if not piece:
                break
            printed += piece
    return printed
