"""Goal: nothing that others have written commands a terminal. Method: real terminals (ptys), hostile messages and ids;
and the same through pipes, where every byte is as it was.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from confluent_kafka import Consumer as StockConsumer
from confluent_kafka import Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from klog.render.visible import for_stream, visible, visible_bytes, visible_json, visible_json_bytes
from tests.broker_fixture import RunningBroker
from tests.cli.process import on_terminal
from tests.cli.runner import klog, written
from tests.rows import each

EVIL = "a\x1b]0;owned\x07b\x9b2Jc\x7fd\u202ee\rf"
SAFE = "a\\x1b]0;owned\\x07b\\x9b2Jc\\x7fd\\u202ee\\x0df"
HOSTILE = "\x1b\x07\x9b\x7f\u202e"


def shown(*words: str) -> str:
    with on_terminal(*words, TERM="dumb") as (process, terminal):
        text = terminal.read_to_end()
        process.wait(20)
    return text


def piped(*words: str) -> bytes:
    return written(*words)[1]


@pytest.fixture
def hostile(broker: RunningBroker, topic: str) -> str:
    """A topic with one message of which every part is hostile."""
    assert klog("topic", "create", topic, "-p", "1", "-B", broker.bootstrap).code == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, EVIL.encode() + b"\x9b", EVIL.encode(), headers=[(EVIL, EVIL.encode())])
    assert producer.flush(20) == 0
    return topic


@each(
    ("words", "wanted"),
    [
        ((), f"{SAFE}\\x9b"),
        (("-f", "%k %h %s\\n"), f"{SAFE} {SAFE}={SAFE} {SAFE}\\x9b"),
        (("--output", "jsonl"), '"key":"a\\u001b]0;owned'),
    ],
)
def test_messages(broker: RunningBroker, hostile: str, words: tuple[str, ...], wanted: str) -> None:
    line = ["tail", hostile, "-o", "start", "-e", "-q", *words, "-B", broker.bootstrap]
    text = shown(*line)
    assert wanted in text
    assert not set(text) & set(HOSTILE)
    raw = piped(*line)
    if "jsonl" in words:
        assert json.loads(raw)["key"] == EVIL
    else:
        assert EVIL.encode() + b"\x9b" in raw


def test_what_a_format_has_itself_is_left(broker: RunningBroker, hostile: str) -> None:
    line = ["tail", hostile, "-o", "start", "-e", "-q", "-f", "\\x1b[1m%k\\x1b[0m\\n", "-B", broker.bootstrap]
    assert f"\x1b[1m{SAFE}\x1b[0m" in shown(*line)


@each("form", ["table", "tsv", "json", "yaml"])
def test_names_of_groups(broker: RunningBroker, topic: str, form: str) -> None:
    assert klog("topic", "create", topic, "-p", "1", "-B", broker.bootstrap).code == 0
    group = f"{EVIL}{topic}"
    consumer = StockConsumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    line = ["lag", group, "-o", form, "-B", broker.bootstrap]
    text = shown(*line)
    assert "owned" in text
    assert not set(text) & set(HOSTILE)
    raw = piped(*line).decode()
    if form == "json":
        assert json.loads(raw)["rows"][0]["group"] == group
    elif form == "tsv":
        assert group.replace("\r", "\\r") in raw


def test_errors(broker: RunningBroker) -> None:
    text = shown("lag", f"no{EVIL}", "-B", broker.bootstrap)
    assert "owned" in text
    assert not set(text) & set(HOSTILE)


@given(st.text())
def test_json_means_the_same(text: str) -> None:
    dumped = json.dumps(text, ensure_ascii=False)
    assert json.loads(visible_json(dumped)) == text
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert json.loads(visible_json_bytes(dumped.encode())) == text


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "replace")))
def test_bytes_are_text_without_commands(content: bytes) -> None:
    text = visible_bytes(content).decode()
    assert all(character in "\t\n" or not (ord(character) < 32 or 127 <= ord(character) < 160) for character in text)
    assert not set(text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def test_what_is_no_terminal_is_left_alone() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    closed: Any = io.StringIO()
    closed.close()
    assert visible("tab\tline\nplain ü") == "tab\tline\nplain ü"
    assert for_stream(EVIL, io.StringIO()) == for_stream(EVIL, closed) == for_stream(EVIL, None) == EVIL
    assert for_stream(EVIL, Terminal()) == SAFE
