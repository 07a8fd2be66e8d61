"""Entries that others wrote: typed, or refused with the path and what was found."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from klog import names
from klog.coordination import entries, paths
from klog.coordination.entries import JsonNode
from klog.errors import ZooKeeperError
from tests.rows import each


def test_values() -> None:
    entry = JsonNode(
        "/p",
        b'{"i":1,"s":"2","t":"x","li":[1,2],"lt":["a"],"m":{"10":[1],"2":[]},"c":{"k":"v"},"f":true}',
    )
    assert (entry.integer("i"), entry.integer("s"), entry.integer("none", 7)) == (1, 2, 7)
    assert (entry.text("t"), entry.text("none", "")) == ("x", "")
    assert (entry.integers("li"), entry.texts("lt"), entry.texts("none")) == ((1, 2), ("a",), ())
    assert list(entry.integer_lists("m").items()) == [(2, ()), (10, (1,))]
    assert entry.text_map("c") == {"k": "v"}
    assert (entry.flag("f"), entry.flag("i"), entry.flag("none")) == (True, False, False)


@each("data", [b"", b"x", b"[]", b"1", b"null", b'{"a":', b"\xff\xfe", b'{"a":1}{'])
def test_no_object(data: bytes) -> None:
    with pytest.raises(ZooKeeperError, match=r"node /p holds .* expected a JSON object"):
        JsonNode("/p", data)


@each(
    ("read", "data"),
    [
        (lambda entry: entry.integer("k"), b"{}"),
        (lambda entry: entry.integer("k"), b'{"k":true}'),
        (lambda entry: entry.integer("k"), b'{"k":1.5}'),
        (lambda entry: entry.integer("k"), b'{"k":"x"}'),
        (lambda entry: entry.text("k"), b'{"k":1}'),
        (lambda entry: entry.integers("k"), b'{"k":[1,"2"]}'),
        (lambda entry: entry.integers("k"), b"{}"),
        (lambda entry: entry.texts("k"), b'{"k":[1]}'),
        (lambda entry: entry.integer_lists("k"), b'{"k":{"x":[1]}}'),
        (lambda entry: entry.integer_lists("k"), b'{"k":{"-1":[1]}}'),
        (lambda entry: entry.integer_lists("k"), b'{"k":{"1":1}}'),
        (lambda entry: entry.text_map("k"), b'{"k":{"a":1}}'),
    ],
)
def test_another_type(read: Callable[[JsonNode], object], data: bytes) -> None:
    with pytest.raises(ZooKeeperError, match=r"node /p holds .*'k'"):
        read(JsonNode("/p", data))


def test_uuids_are_kafkas() -> None:
    one = uuid.UUID("12345678-1234-5678-1234-567812345678")
    assert names.uuid_text(one) == "EjRWeBI0VngSNFZ4EjRWeA"
    assert entries.parse_uuid("/p", names.uuid_text(one)) == one
    for wrong in ("", "x", "EjRWeBI0VngSNFZ4EjRWe", "EjRWeBI0VngSNFZ4EjRWeA==", "EjRWeBI0VngSNFZ4EjRW+/!"):
        with pytest.raises(ZooKeeperError, match="/p"):
            entries.parse_uuid("/p", wrong)


def test_ancestors() -> None:
    assert paths.ancestors("/a/b/c") == ["/a", "/a/b"]
    assert paths.ancestors("/a") == paths.ancestors("/") == []
