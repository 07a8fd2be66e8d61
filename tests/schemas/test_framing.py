"""The five bytes before a datum."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klog.record.avro_framing import frame, unframed
from tests.rows import each


@given(st.integers(1, 2**31 - 1), st.binary())
def test_what_is_framed_comes_back(schema_id: int, datum: bytes) -> None:
    framed = frame(schema_id, datum)
    assert framed == b"\0" + schema_id.to_bytes(4, "big") + datum
    assert unframed(framed) == (schema_id, datum)


@each("payload", [b"", b"\0\0\0\0", b"\1" + bytes(16), b'{"a":1}'])
def test_what_is_not_framed_stays_as_it_is(payload: bytes) -> None:
    assert unframed(payload) == (None, payload)
