"""The five bytes before a datum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import InvalidRecord
from klog.record.avro_framing import frame, unframe
from tests.rows import each


@given(st.integers(1, 2**31 - 1), st.binary())
def test_what_is_framed_comes_back(schema_id: int, datum: bytes) -> None:
    framed = frame(schema_id, datum)
    assert framed == b"\0" + schema_id.to_bytes(4, "big") + datum
    found = unframe(memoryview(framed))
    assert (found.schema_id, bytes(found.datum)) == (schema_id, datum)


@each(
    ("payload", "said"),
    [
        (b"", "0 bytes"),
        (b"\0\0\0\0", "4 bytes"),
        (b"\1" + bytes(16), "UUID"),
        (b'{"a":1}', "byte 123, expected magic 0"),
        (b"\0\0\0\0\0x", "schema id 0"),
        (b"\0\xff\xff\xff\xff", "schema id -1"),
    ],
)
def test_what_is_not_framed_is_said(payload: bytes, said: str) -> None:
    with pytest.raises(InvalidRecord, match=said):
        unframe(payload)


@given(st.binary(max_size=8))
def test_any_bytes_are_a_datum_or_an_error(payload: bytes) -> None:
    try:
        found = unframe(payload)
    except InvalidRecord:
        return
    assert frame(found.schema_id, found.datum) == payload
