"""`klog produce -f`: lines that `klog tail -f` wrote with the same format are the same messages."""

from __future__ import annotations

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import UsageError
from klog.render.jsonl import Content
from klog.tools.formats import compile_format
from klog.tools.input_messages import compile_line_format
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.rows import each

PARTS = st.binary(max_size=20)


@given(PARTS, PARTS, st.none() | st.integers(0, 2**45))
def test_what_was_shown_is_read(key: bytes, value: bytes, time_ms: int | None) -> None:
    time = (0, -1) if time_ms is None else (1, time_ms)
    message = Message(topic="t", partition=3, offset=4711, key=key, value=value, timestamp=time)
    for text in (
        "%t-%p:%o %T %k{hex} %s",
        "%k{base64}|%T|%v",
        "<%T> %k{hex}=%s{base64};",
        "%d %k{hex} %S %s",
        "100%% %T %s",
    ):
        found = compile_line_format(text)(compile_format(text)(message))
        assert found.value == value and found.timestamp_ms == time_ms
        assert found.key == (key if "%k" in text else None)


@each(
    ("text", "line", "content"),
    [
        (r"%k\t%s\n", b"a\tb\tc", Content(b"a", b"b\tc", [], None)),
        ("%s", b"", Content(None, b"", [], None)),
        ("%h %s", b"a=1,b= x", Content(None, b"x", [("a", b"1"), ("b", b"")], None)),
        ("%h %s", b" x", Content(None, b"x", [], None)),
        ("%k%%%s.", b"a%b..", Content(b"a", b"b.", [], None)),
    ],
)
def test_read(text: str, line: bytes, content: Content) -> None:
    assert compile_line_format(text)(line) == content


@each("text", ["", "%k", "%k%s", "%R%s", "%s{unpack[>I]}", "%d{%F} %s", "%s %v %s", "%z %s", "%s%"])
def test_formats_that_cannot_be_read_back(text: str) -> None:
    with pytest.raises(UsageError):
        compile_line_format(text)


@each(
    ("text", "line"),
    [
        ("%k:%s", b"a"),
        ("<%s>", b"a>"),
        ("<%s>", b"<a"),
        ("%s{hex}", b"0"),
        ("%s{base64}", b"?"),
        ("%T %s", b"soon x"),
        ("%T %s", b"9" * 30 + b" x"),
        ("%d %s", b"soon x"),
        ("%h %s", b"a x"),
    ],
)
def test_lines_of_another_form(text: str, line: bytes) -> None:
    with pytest.raises(UsageError):
        compile_line_format(text)(line)


def test_by_the_command(broker: RunningBroker, topic: str) -> None:
    at = ["-B", broker.bootstrap]
    lines = "k1 1769940000250 v 1\nwrong\nk2 1769940000251 \n"
    ran = klog("produce", topic, "--create", "-f", "%k %T %s", "-H", "h=1", "-Z", *at, input=lines)
    assert ran.code == 1 and "line 2" in ran.stderr
    shown = klog("tail", topic, "-o", "start", "-e", "-f", r"%k %T %S %h %s\n", *at).stdout
    assert shown == "k1 1769940000250 3 h=1 v 1\nk2 1769940000251 -1 h=1 \n"
    for wrong in (["-K", ":"], ["-k", "a"], ["-i", "jsonl"]):
        assert klog("produce", topic, "-f", "%k %s", *wrong, *at, input="").code == 2
