"""Messages as JSON lines, as format strings, and from lines of input."""

import base64
import io
import json
import os

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import MessageTooLarge, UsageError
from klog.render.jsonl import Content, LineWriter, from_line, rfc3339, to_line
from klog.tools import input_messages
from klog.tools.deliveries import plain
from klog.tools.formats import compile_format
from klog.tools.input_messages import line_reader, lines, parse_delimiter
from klog.tools.message_formatter import MessageFormatter
from klog.tools.options import ProduceOptions, TailOptions
from tests.rows import each

BLOBS = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=20).map(str.encode))
CONTENTS = st.builds(
    Content,
    BLOBS,
    BLOBS,
    st.lists(st.tuples(st.text(max_size=5), BLOBS), max_size=3),
    st.integers(0, 253402300799999),
    st.none(),
)


@given(CONTENTS)
def test_a_message_survives_json(content: Content) -> None:
    line = to_line("t", 1, 2, content)
    assert "\n" not in line
    assert from_line(line.encode()) == content


TIMES = st.one_of(st.none(), st.integers(0, 2**63 - 1), st.integers(1_769_940_000_000, 1_769_940_003_000))
ANY_CONTENTS = st.builds(
    Content, BLOBS, BLOBS, st.lists(st.tuples(st.text(max_size=5), BLOBS), max_size=3), TIMES, st.none()
)


@given(st.lists(st.tuples(st.sampled_from(["t", "u-1"]), st.integers(0, 3), ANY_CONTENTS), max_size=12))
def test_the_fast_lines_are_those_of_the_slow_way_and_nothing_is_lost(rows: list[tuple[str, int, Content]]) -> None:
    messages = [
        Message(
            topic=topic,
            partition=partition,
            offset=7 * number,
            key=content.key,
            value=content.value,
            headers=content.headers or None,
            timestamp=(0, -1) if content.timestamp_ms is None else (1, content.timestamp_ms),
        )
        for number, (topic, partition, content) in enumerate(rows)
    ]
    writer = LineWriter()
    expected = [to_line(topic, partition, 7 * at, content) for at, (topic, partition, content) in enumerate(rows)]
    written = writer.lines(messages)
    assert written == "".join(line + "\n" for line in expected).encode()
    assert writer.lines(messages) == written, "also with what it remembers"
    assert [from_line(line) for line in written.split(b"\n")[:-1]] == [content for _, _, content in rows]


def test_more_times_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klog.render.jsonl.TIMES_KEPT", 3)
    writer = LineWriter()
    for timestamp_ms in [*range(0, 20_000, 500), 5, 2**62]:
        message = Message(topic="t", partition=0, offset=0, value=b"", timestamp=(1, timestamp_ms))
        assert writer.lines([message]).decode() == to_line("t", 0, 0, Content(None, b"", [], timestamp_ms)) + "\n"


def test_a_json_line_has_the_keys_that_scripts_rely_on() -> None:
    row = json.loads(to_line("t", 1, 2, Content(None, b"\xff", [("h", b"v")], 1_769_940_000_123)))
    assert row == {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": "2026-02-01T10:00:00.123Z",
        "key": None,
        "value": "/w==",
        "headers": [{"key": "h", "value": "v", "encoding": "utf-8"}],
        "key_encoding": None,
        "value_encoding": "base64",
    }


def test_json_lines_written_by_hand() -> None:
    assert from_line(b'{"value": "x"}') == Content(None, b"x", [], None)
    assert from_line(b'{"value": null, "key": "k", "headers": {"a": "b"}, "timestamp": 5}') == Content(
        b"k", None, [("a", b"b")], 5
    )


@each(
    ("line", "complaint"),
    [
        (b"x", "JSON"),
        (b"[1]", "list"),
        (b"{}", "value"),
        (b'{"value": 1}', "value is 1"),
        (b'{"value": "x", "value_encoding": "rot13"}', "value_encoding is 'rot13'"),
        (b'{"value": "x!", "value_encoding": "base64"}', "base64"),
        (b'{"value": "x", "headers": ["a"]}', "headers are"),
        (b'{"value": "x", "timestamp": "soon"}', "timestamp is 'soon'"),
        (b'{"value": "\\ud800"}', "half a surrogate pair"),
        (b"[" * 100_000, "JSON"),
        (b'{"value": "\xff"}', "JSON"),
    ],
)
def test_lines_that_are_no_message_say_why(line: bytes, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_line(line)
    assert complaint in caught.value.message


def test_times_beyond_pythons_calendar_are_numbers() -> None:
    assert rfc3339(2**62) == str(2**62)
    assert from_line(to_line("t", 0, 0, Content(None, b"", [], 2**62)).encode()).timestamp_ms == 2**62


def shown(key: bytes | None, value: bytes | None) -> Message:
    """A message with two headers; one with a key was written in epoch 6."""
    about = {"headers": [("a", b"1"), ("b", None)], "timestamp": (1, 1_769_940_000_123)}
    epoch = {} if key is None else {"leader_epoch": 6}
    return Message(topic="t", partition=3, offset=42, key=key, value=value, **about, **epoch)


@each(
    ("text", "expected"),
    [
        (r"%t %p %o\n", b"t 3 42\n"),
        (r"%k=%s (%K, %S)", b"key=val\xff (3, 4)"),
        (r"%h %T", b"a=1,b= 1769940000123"),
        (r"%v{hex} %s{base64} %k{hex}", b"76616cff dmFs/w== 6b6579"),
        (r"%v{unpack[>HH]}", b"30305 27903"),  # 0x7661 0x6cff
        (r"%v{unpack[>q]}", b"?"),
        (r"%d", b"2026-02-01T10:00:00.123Z"),
        (r"%d{%H:%M}", b"10:00"),
        (r"100%% \x41\t\\%o", b"100% A\t\\42"),
        ("äö %o", "äö 42".encode()),
        ("\udcff%o", b"\xff42"),
        (r"%R", b"\x00\x00\x00\x04"),
        (r"%V %e %H %]", b"4 6 2 4711"),
        (r"%v{unpack[>B3s]} %k{unpack[<b]}", b"118 al\xff 107"),
        (r"%d{strftime[%F %T]} %d{strftime[{%y}]}", b"2026-02-01 10:00:00 {26}"),
        (r"%h{%k=%v,%V;}", b"a=1,1;b=,-1;"),
        (r"%h{{%k{hex}:%s{base64}} }", b"{61:MQ==} {62:} "),
        (r"{%o}", b"{42}"),
    ],
)
def test_formats(text: str, expected: bytes) -> None:
    assert compile_format(text, lambda topic, partition: 4711)(shown(b"key", b"val\xff")) == expected


def test_null_is_empty_and_its_length_is_minus_one() -> None:
    assert compile_format("[%k][%s] %K %S %v{hex}")(shown(None, None)) == b"[][] -1 -1 "
    assert compile_format("%R %e %]")(shown(None, None)) == b"\xff\xff\xff\xff -1 -1"


def test_what_has_no_time() -> None:
    message = Message(topic="t", partition=0, offset=0, value=b"", timestamp=(0, -1))
    assert compile_format("%T %d %d{%H}")(message) == b"-1 - -"


@given(st.binary(max_size=30), st.one_of(st.none(), st.binary(max_size=30)))
def test_bytes_of_any_kind_are_shown_as_they_are(value: bytes, key: bytes | None) -> None:
    message = Message(topic="t", partition=0, offset=1, key=key, value=value, timestamp=(1, 5), headers=[("h", value)])
    assert compile_format("%k|%s|%h{%v}")(message) == (key or b"") + b"|" + value + b"|" + value
    assert bytes.fromhex(compile_format("%v{hex}")(message).decode()) == value
    assert base64.b64decode(compile_format("%v{base64}")(message)) == value
    assert compile_format("%S")(message) == b"%d" % len(value)
    assert MessageFormatter(TailOptions()).show([message, message]) == (value + b"\n") * 2


@given(st.text(max_size=12).map(lambda text: "%" + text))
def test_any_text_is_a_format_or_wrong_usage(text: str) -> None:
    try:
        show = compile_format(text)
    except UsageError as error:
        assert repr(text) in error.message
    else:
        show(shown(b"k", b"v"))


@given(st.text("%\\{}[]hkvsdunpack>I= x0", max_size=20).map(lambda text: "%" + text))
def test_any_text_of_formats_letters_is_one_or_wrong_usage(text: str) -> None:
    test_any_text_is_a_format_or_wrong_usage.hypothesis.inner_test(text)  # type: ignore[attr-defined]


@each(
    ("options", "expected"),
    [
        ({"grep": "a.c"}, [b"xabcx"]),
        ({"grep": "^$"}, [b""]),
        ({"grep": r"\xff"}, [b"\xff\n"]),
        ({"grep": "\udcff"}, [b"\xff\n"]),
        ({"grep": "ö"}, ["ö".encode()]),
        ({"grep": ""}, [b"xabcx", b"", b"\xff\n", "ö".encode()]),
        ({"grep_key": "k[12]"}, [b"xabcx", b""]),
        ({"grep_key": "k", "grep": "b"}, [b"xabcx"]),
        ({"grep": "!a.c|^$"}, [b"\xff\n", "ö".encode(), None]),
        ({"grep": r"\!"}, []),
        ({"grep_key": "!k"}, ["ö".encode()]),
        ({"grep_header": "^k=v$"}, [b"xabcx"]),
        ({"grep_header": "!^k=", "grep_key": "k"}, [b"\xff\n", None]),
    ],
)
def test_searching_in_bytes(options: dict[str, str], expected: list[bytes]) -> None:
    values = [(b"k1", b"xabcx"), (b"k2", b""), (b"k3", b"\xff\n"), (None, "ö".encode()), (b"k4", None)]
    messages = [Message(topic="t", partition=0, offset=1, key=key, value=value) for key, value in values]
    messages[0].set_headers([("a", None), ("k", b"v")])
    messages[1].set_headers([("k", None)])
    found = MessageFormatter(TailOptions(**options)).wanted(messages)  # type: ignore[arg-type]
    assert [one.value() for one in found] == expected


@each("text", ["(", "[", "*", "(?P<a", r"\p", "a{99999999999}", "(?u)a"])
def test_searches_that_are_none(text: str) -> None:
    for options in (TailOptions(grep=text), TailOptions(grep_key=text), TailOptions(grep_header=f"!{text}")):
        with pytest.raises(UsageError, match="regular expression"):
            MessageFormatter(options)


@each(
    "text",
    [
        *("%q", "%", "%s{rot13}", "%s{unpack[zz]}", "%s{unpack[]}", "%o{hex}", r"%o\q", "%o\\", r"%o\x4", r"%o\xgg"),
        *("%s{", "%s{hex", "%s{unpack[>I}", "%h{%k", "%h{%o}", "%h{%h}", "%d{strftime[\udcff]}", "%d{%", "%é"),
    ],
)
def test_formats_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        compile_format(text)


def test_f_without_a_percent_sign_is_tails_old_meaning() -> None:
    with pytest.raises(UsageError) as caught:
        compile_format("follow")
    assert "-f" in (caught.value.hint or "")


@given(st.lists(st.binary(max_size=6).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.integers(1, 9))
def test_lines_are_those_of_the_file_however_it_is_cut(expected: list[bytes], chunk_bytes: int) -> None:
    text = b"".join(line + b"\n" for line in expected)
    assert [line for run in lines(trickle(text, chunk_bytes), lambda: False) for line in run] == expected
    if expected and expected[-1]:  # the last end of line may be missing
        assert [line for run in lines(trickle(text[:-1], chunk_bytes), lambda: False) for line in run] == expected


@given(st.lists(st.text("ax-", max_size=6), max_size=8), st.integers(1, 9), st.sampled_from(["-", "--", "-x-"]))
def test_delimiters_of_several_bytes(words: list[str], chunk_bytes: int, delimiter: str) -> None:
    text = "".join(word + delimiter for word in words)
    expected = text.split(delimiter)
    found = [
        line for run in lines(trickle(text.encode(), chunk_bytes), lambda: False, delimiter.encode()) for line in run
    ]
    assert found == [one.encode() for one in (expected if expected[-1] else expected[:-1])]


@each(
    ("text", "expected"),
    [
        (":", b":"),
        (r"\t", b"\t"),
        ("\t", b"\t"),
        (r"\n\n", b"\n\n"),
        (r"a\x1eb", b"a\x1eb"),
        (r"\x0", b"\0"),
        (r"\0", b"\0"),
        (r"\\n", rb"\n"),
        (r"\q", rb"\q"),
        ("é", "é".encode()),
        ("\udcff", b"\xff"),
    ],
)
def test_delimiters_as_kcat_takes_them(text: str, expected: bytes) -> None:
    assert parse_delimiter(text, "-D") == expected


@each("text", ["", r"\x", r"\xg"])
def test_delimiters_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="-D"):
        parse_delimiter(text, "-D")


def trickle(text: bytes, chunk_bytes: int) -> io.BytesIO:
    class Trickle(io.BytesIO):
        def fileno(self) -> int:
            raise io.UnsupportedOperation

        def read(self, size: int | None = -1) -> bytes:
            return super().read(chunk_bytes)

    return Trickle(text)


def test_a_line_without_an_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_messages, "MESSAGE_BYTES_MAX", 100)
    monkeypatch.setattr(input_messages, "CHUNK_BYTES", 10)
    with pytest.raises(MessageTooLarge, match="line 2"):
        list(lines(io.BytesIO(b"a\n" + b"x" * 200), lambda: False))


def test_reading_from_a_pipe_that_says_nothing_can_be_stopped() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as source:
        os.write(write_end, b"one\ntwo")
        assert list(lines(source, lambda: True)) == [[b"one"], [b"two"]]
    os.close(write_end)


@each(
    ("splitter", "line", "expected"),
    [
        ({}, b"a:b", (None, b"a:b")),
        ({"key": b"k"}, b"a:b", (b"k", b"a:b")),
        ({"key_delimiter": b":"}, b"a:b:c", (b"a", b"b:c")),
        ({"key_delimiter": b":"}, b"abc", (None, b"abc")),
        ({"key_delimiter": b":"}, b":", (b"", b"")),
        ({"key_delimiter": b":", "empty_is_null": True}, b":", (None, None)),
        ({"empty_is_null": True}, b"", (None, None)),
        ({"key_delimiter": b"=>"}, b"a=>b", (b"a", b"b")),
    ],
)
def test_splitting(splitter: dict[str, object], line: bytes, expected: tuple[bytes | None, bytes | None]) -> None:
    read = line_reader(ProduceOptions(**splitter))  # type: ignore[arg-type]
    content = plain(line) if read is None else read(line)
    assert (content.key, content.value) == expected
