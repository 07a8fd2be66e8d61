r"""From bytes to messages: runs of lines, or whole inputs; and what makes a message of a line.

What `klog tail -f FORMAT` wrote is read by the same format.
``%k``, ``%s`` or ``%v``, ``%T``, ``%d`` and ``%h`` are the message's key, value, time and headers; ``%t``, ``%p``,
``%o``, ``%e``, ``%K``, ``%S``, ``%V``, ``%H`` and ``%]`` are skipped, but for ``%p`` where partitions are kept. A
letter takes the text up to where the text behind it in the format begins, the last one all the rest.
"""

from __future__ import annotations

import binascii
import io
import os
import re
import select
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, NamedTuple

from klog.client.headers import check_header_name
from klog.client.producer_settings import MESSAGE_BYTES_MAX
from klog.errors import MessageTooLarge, UsageError
from klog.render.jsonl import Content, from_line, parse_partition, parse_timestamp
from klog.tools.formats import ESCAPES, tokens
from klog.tools.options import ProduceOptions

CHUNK_BYTES = 1 << 20
"""Read at once: some thousand lines, so that splitting them is one call."""

IDLE_S = 0.1
"""How long a read may wait before its caller may stop."""


_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([ntr0\\]))")


def parse_delimiter(text: str, flag: str) -> bytes:
    r"""A delimiter as kcat takes it: characters, and the escapes ``\n``, ``\t``, ``\r``, ``\0``, ``\\`` and ``\xHH``.

    UsageError names the flag where it is empty, or where hexadecimal digits are missing behind ``\x``.
    """
    found, at = b"", 0
    for escape in _ESCAPE.finditer(text):
        found += text[at : escape.start()].encode("utf-8", "surrogateescape")
        found += bytes([int(escape[1], 16)]) if escape[1] else ESCAPES[escape[2]]
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


# --- From a line to a message ---

LineReader = Callable[[bytes], Content]
"""Raises UsageError for a line that is not of the form."""

_SKIPPED: Final = frozenset("tpoeKSVH]")
_HINT: Final = (
    r"letters: %k %s %v{hex} %v{base64} %T %d %h, and %t %p %o %K %S, which are skipped; for example '%k\t%s'"
)


def line_reader(options: ProduceOptions) -> LineReader | None:
    """What makes a message of each line, or of an input that is taken whole; None: it is the value, and nothing else.

    UsageError for flags that exclude each other, and for a format that cannot be read back.
    """
    encoder, has_key = options.encoder, options.key is not None or options.key_delimiter is not None
    has_flags = bool(options.headers) or options.empty_is_null
    if options.format is not None:
        if options.input != "lines" or has_key:
            raise UsageError("-f excludes -k, -K and -i: the format says where the key is")
        read = compile_line_format(options.format, options.keep_partitions)
    elif options.input == "jsonl":
        if has_key or has_flags:
            raise UsageError("-k, -K, -H and -Z are for lines and files; a JSON line has its own key and headers")
        value_of = None if encoder is None else encoder.row
        return lambda line: _sendable(from_line(line, options.keep_partitions, value_of))
    elif has_key or has_flags or encoder is not None:
        read = _splitter(options.key, options.key_delimiter)
    else:
        return None
    if has_flags or encoder is not None:
        read = _with_flags(read, options)
    return read if options.format is None else lambda line: _sendable(read(line))


def _splitter(key: bytes | None, delimiter: bytes | None) -> LineReader:
    """Key and value at the first delimiter."""
    if key is not None and delimiter is not None:
        raise UsageError("-k (one key for all messages) and -K (the key in each line) exclude each other")

    def read(line: bytes) -> Content:
        if delimiter is not None:
            before, found, after = line.partition(delimiter)
            if found:
                return Content(before, after, [], None)
        return Content(key, line, [], None)

    return read


def _with_flags(read: LineReader, options: ProduceOptions) -> LineReader:
    """With the headers of -H behind a message's own, with -Z, and with values encoded; null has none."""
    is_null, headers, encoder = options.empty_is_null, options.headers, options.encoder

    def reader(line: bytes) -> Content:
        key, value, own, timestamp_ms, partition = read(line)
        if is_null:
            key, value = key or None, value or None
        if encoder is not None and value is not None:
            value = encoder.text(value)
        return Content(key, value, [*own, *headers], timestamp_ms, partition)

    return reader


def _sendable(content: Content) -> Content:
    """Raises UsageError for what confluent-kafka cannot send."""
    for name, _ in content.headers:
        check_header_name(name)
    return content


class _Field(NamedTuple):
    letter: str
    modifier: str | None
    end: bytes
    """What follows in each line."""


def compile_line_format(text: str, keep_partition: bool = False) -> LineReader:
    """The function that makes a message of a line without its end. UsageError for a format that cannot be read back."""
    start, fields = _parsed(text)
    if not any(one.letter in "sv" for one in fields):
        raise UsageError(f"-f {text!r} has no %s: where is the value?", hint=_HINT)
    if keep_partition and not any(one.letter == "p" for one in fields):
        raise UsageError(f"-f {text!r} has no %p, which --keep-partitions needs", hint=_HINT)

    def read(line: bytes) -> Content:
        if not line.startswith(start):
            raise UsageError(f"it does not begin with {start!r}, as -f has it")
        found: dict[str, bytes] = {}
        rest = line[len(start) :]
        for field in fields[:-1]:
            content, end, rest = rest.partition(field.end)
            if not end:
                raise UsageError(f"{field.end!r} is missing behind %{field.letter}")
            found[field.letter] = _bytes(content, field)
        last = fields[-1]
        if not rest.endswith(last.end):
            raise UsageError(f"it does not end with {last.end!r}, as -f has it")
        found[last.letter] = _bytes(rest.removesuffix(last.end), last)
        value = found["s"] if "s" in found else found["v"]
        partition = _partition(found["p"]) if keep_partition else None
        return Content(found.get("k"), value, _headers(found.get("h", b"")), _time(found), partition)

    return read


def _parsed(text: str) -> tuple[bytes, list[_Field]]:
    """The text in front, and the letters with what follows each. The end of the line may be in the format."""
    start, fields = b"", list[_Field]()
    for token in tokens(text.removesuffix("\\n"), text):
        literal = token if isinstance(token, bytes) else b"%" if token[0] == "%" else None
        if literal is not None:
            if fields:
                fields[-1] = fields[-1]._replace(end=fields[-1].end + literal)
            else:
                start += literal
            continue
        assert not isinstance(token, bytes)
        letter, modifier = token
        if letter not in _SKIPPED and letter not in "ksvTdh":
            raise UsageError(f"-f {text!r}: %{letter} cannot be read back", hint=_HINT)
        if modifier is not None and (letter not in "ksv" or modifier not in ("hex", "base64")):
            raise UsageError(f"-f {text!r}: %{letter} with {{{modifier}}} cannot be read back", hint=_HINT)
        if fields and not fields[-1].end:
            raise UsageError(f"-f {text!r} needs text between %{fields[-1].letter} and %{letter}", hint=_HINT)
        if letter not in _SKIPPED and any(one.letter == letter for one in fields):
            raise UsageError(f"-f {text!r} has %{letter} twice", hint=_HINT)
        fields.append(_Field(letter, modifier, b""))
    return start, fields


def _bytes(content: bytes, field: _Field) -> bytes:
    try:
        if field.modifier == "hex":
            return binascii.unhexlify(content)
        return b64decode(content, validate=True) if field.modifier == "base64" else content
    except ValueError as error:
        raise UsageError(f"%{field.letter} is not {field.modifier}: {error}") from None


def _headers(content: bytes) -> list[tuple[str, bytes | None]]:
    """``name=value,name=value``."""
    found = list[tuple[str, bytes | None]]()
    for part in content.split(b",") if content else ():
        name, sign, value = part.partition(b"=")
        if not sign:
            raise UsageError(f"%h is {content[:40]!r}; expected NAME=VALUE,...")
        found.append((name.decode("utf-8", "backslashreplace"), value))
    return found


def _time(found: dict[str, bytes]) -> int | None:
    if "T" in found:
        text = found["T"]
        if text == b"-1":
            return None
        if not text.isdigit() or len(text) > 18:
            raise UsageError(f"%T is {text[:40]!r}; expected milliseconds")
        return int(text)
    if "d" in found and found["d"] != b"-":
        return parse_timestamp(found["d"].decode("utf-8", "backslashreplace"))
    return None


def _partition(text: bytes) -> int:
    if not text.isdigit() or len(text) > 10:
        raise UsageError(f"%p is {text[:40]!r}; expected the number of a partition")
    return parse_partition(int(text))
