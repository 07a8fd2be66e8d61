"""From what is read to runs of lines, or to whole inputs."""

from __future__ import annotations

import io
import os
import re
import select
from collections.abc import Callable, Iterator
from typing import BinaryIO

from klog.client.producer_settings import MESSAGE_BYTES_MAX
from klog.errors import MessageTooLarge, UsageError

CHUNK_BYTES = 1 << 20
"""Read at once: some thousand lines, so that splitting them is one call."""

IDLE_S = 0.1
"""How long a read may wait before its caller may stop."""


_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([ntr0\\]))")
_ESCAPED = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def parse_delimiter(text: str, flag: str) -> bytes:
    r"""A delimiter as kcat takes it: characters, and the escapes ``\n``, ``\t``, ``\r``, ``\0``, ``\\`` and ``\xHH``.

    UsageError names the flag where it is empty, or where hexadecimal digits are missing behind ``\x``.
    """
    found, at = b"", 0
    for escape in _ESCAPE.finditer(text):
        found += text[at : escape.start()].encode("utf-8", "surrogateescape")
        found += bytes([int(escape[1], 16)]) if escape[1] else _ESCAPED[escape[2]]
        at = escape.end()
    found += text[at:].encode("utf-8", "surrogateescape")
    if not found:
        raise UsageError(f"{flag} needs a delimiter that is not empty", hint=f"for example {flag} ':' or {flag} '\\t'")
    if re.search(r"(?<!\\)\\x(?![0-9a-fA-F])", text):
        raise UsageError(f"{flag} {text!r}: \\x needs hexadecimal digits", hint=f"for example {flag} '\\x1e'")
    return found


def chunks(source: BinaryIO, idle: Callable[[], bool]) -> Iterator[bytes]:
    """What ``source`` holds, as it comes; ``idle`` is called while nothing does, and ends the reading with True.

    Read from the descriptor where there is one: a thread that hangs in a buffered read of stdin could neither be
    stopped nor left behind.
    """
    try:
        descriptor = source.fileno()
    except (OSError, io.UnsupportedOperation, AttributeError):
        while chunk := source.read(CHUNK_BYTES):
            yield chunk
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while True:
        if poll.poll(IDLE_S * 1000):
            chunk = os.read(descriptor, CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
        elif idle():
            return


def lines(source: BinaryIO, idle: Callable[[], bool], end: bytes = b"\n") -> Iterator[list[bytes]]:
    """Runs of lines without their ends; a last line without an end is one too. MessageTooLarge names a line."""
    tail = len(end) - 1
    rest = b""
    number = 0
    for chunk in chunks(source, idle):
        if end not in (rest[-tail:] + chunk if tail else chunk):
            rest += chunk
            if len(rest) > MESSAGE_BYTES_MAX:
                raise MessageTooLarge(f"line {number + 1} is longer than {MESSAGE_BYTES_MAX:,} bytes")
            continue
        run = (rest + chunk).split(end) if rest else chunk.split(end)
        rest = run.pop()
        number += len(run)
        yield run
    if rest:
        yield [rest]


def wholes(source: BinaryIO, idle: Callable[[], bool]) -> Iterator[list[bytes]]:
    """One run of one message: all that ``source`` holds."""
    content = bytearray()
    for chunk in chunks(source, idle):
        content += chunk
        if len(content) > MESSAGE_BYTES_MAX:
            raise MessageTooLarge(f"more than {MESSAGE_BYTES_MAX:,} bytes in one message")
    yield [bytes(content)]
