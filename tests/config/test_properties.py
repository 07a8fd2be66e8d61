"""Kafka's properties files: comments, separators, continuation, escapes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.config import parse_properties, read_properties
from klog.errors import InvalidConfig, NoSuchThing
from tests.rows import each


@each(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("  a = 1  ", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("# a=1\n! b=2\n\n  # c=3", {}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
        ("a=1\na=2", {"a": "2"}),
        ("log.dirs=/a,\\\n    /b", {"log.dirs": "/a,/b"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=x\\\n#y", {"a": "x#y"}),
        ("a=x\\", {"a": "x"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=tab\\tend", {"a": "tab\tend"}),
        ("a=\\u00e9", {"a": "é"}),
        ("listeners=PLAINTEXT://:9092 # not a comment", {"listeners": "PLAINTEXT://:9092 # not a comment"}),
    ],
)
def test_parse(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_line_without_a_key_is_named() -> None:
    with pytest.raises(InvalidConfig, match=r"server\.properties, line 2") as refused:
        parse_properties("a=1\n=what may be secret", source="server.properties")
    assert "secret" not in refused.value.message


@given(
    st.dictionaries(st.text("abc.= :\\#!", min_size=1), st.text("xyz =:\\#\t\n", max_size=9).map(str.strip), max_size=5)
)
def test_what_is_written_with_escapes_comes_back(properties: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        letters = {"\n": "\\n", "\t": "\\t"}
        return "".join(letters.get(c, "\\" + c if c in "=: \\#!" else c) for c in text)

    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in properties.items())
    assert parse_properties(text) == properties


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    with pytest.raises(NoSuchThing, match=r"server\.properties"):
        read_properties(path)
    path.write_bytes(b"a=\xff")
    with pytest.raises(NoSuchThing, match="UTF-8"):
        read_properties(path)
    path.write_text("broker.id=3\n")
    assert read_properties(path) == {"broker.id": "3"}
