"""The datums of a batch side by side: the next position in each, the rows that were given up and why; Arrow arrays.

Strategy: a step reads one value of every datum at once, which costs numpy's calls once per batch and not once per
message. No step raises for a bad datum. It gives the datum up: it records the reason, and from then on the datum reads
zeros behind the data, which are a valid value of every type. The decoder drops the row at the end, so one bad datum
does not disturb the others.

Positions only grow, so the position at the end shows whether a datum read past its own end, and most steps do not
check. Texts, bytes and counts do check, because a length decides how much is read or allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

PAD_BYTES: Final = 64
"""Of zeros behind the data: more than any step reads at a place without looking."""
FAR: Final = 2**62
"""The end of a datum that was given up: larger than any position."""
VARINT_BYTES_MAX: Final = 10

CUT_SHORT: Final = "the datum is cut short"
TOO_LONG: Final = "a number of more than 64 bits"
NO_TEXT: Final = "a text that is not UTF-8"


class Datums:
    """The bytes of a batch, and the reasons why some of its rows cannot be decoded."""

    def __init__(self, data: NDArray[np.uint8], rows: int) -> None:
        self.sink = len(data)
        self.data = np.zeros(len(data) + PAD_BYTES, np.uint8)
        self.data[: self.sink] = data
        self.buffer = pa.py_buffer(self.data)
        self.failed = np.zeros(rows, np.bool_)
        self._codes = np.zeros(rows, np.int32)
        self._reasons: dict[str, int] = {}
        self._ends_of_numbers: Ints | None = None

    def give_up(self, rows: Ints, reason: str) -> None:
        """Only the first reason of a row is kept."""
        fresh = rows[~self.failed[rows]]
        self._codes[fresh] = self._reasons.setdefault(reason, len(self._reasons))
        self.failed[fresh] = True

    def reasons(self, rows: Ints) -> pa.Array:
        return pa.array(list(self._reasons), pa.string()).take(pa.array(self._codes[rows]))

    def ends_of_numbers(self) -> Ints:
        """The positions of all bytes that can end a variable-length number."""
        if self._ends_of_numbers is None:
            self._ends_of_numbers = np.flatnonzero(self.data < 0x80)
        return self._ends_of_numbers


class Front:
    """The position of the next value of each of many rows. ``at`` moves; an array has one entry per item."""

    __slots__ = ("at", "datums", "end", "rows")

    def __init__(self, datums: Datums, rows: Ints, at: Ints, end: Ints) -> None:
        self.datums = datums
        self.rows = rows
        self.at = at
        self.end = end

    def __len__(self) -> int:
        return len(self.at)

    def some(self, index: Ints) -> Front:
        """A separate front for these rows; `put` copies its positions back."""
        return Front(self.datums, self.rows[index], self.at[index], self.end[index])

    def put(self, index: Ints, part: Front) -> None:
        self.at[index] = part.at
        self.end[index] = part.end

    def fail(self, bad: Mask, reason: str) -> None:
        """Give these rows up. A row that is past the end of its datum gets that as its reason."""
        index = np.flatnonzero(bad & (self.end != FAR))
        past = self.at[index] > self.end[index]
        rows = self.rows[index]
        self.datums.give_up(rows[past], CUT_SHORT)
        self.datums.give_up(rows[~past], reason)
        self._sink(index)

    def sink_failed(self) -> None:
        """Give up rows whose items were given up."""
        if self.datums.failed.any():
            self._sink(np.flatnonzero(self.datums.failed[self.rows]))

    def finish(self) -> None:
        """Every datum must have been read to its end."""
        if (self.at != self.end).any():
            self.fail(self.at > self.end, CUT_SHORT)
            left = np.where(self.end == FAR, 0, self.end - self.at)
            for count in np.unique(left[left > 0])[:REASONS_MAX]:
                self.fail(left == count, f"{count} bytes left behind the datum")
            self.fail(left > 0, "bytes left behind the datum")

    def _sink(self, index: Ints) -> None:
        # Copies, because steps keep the old arrays.
        self.at = self.at.copy()
        self.end = self.end.copy()
        self.at[index] = self.datums.sink
        self.end[index] = FAR

    # --- Reading ---

    def numbers(self, where: str) -> Ints:
        """The next variable-length zigzag number of each row."""
        data = self.datums.data
        read = data.take(self.at, mode="clip")
        more = np.flatnonzero(read >= 0x80)
        if not more.size:
            self.at = self.at + 1
            small = read.astype(np.int64)
            return (small >> 1) ^ -(small & 1)
        found = (read & 0x7F).astype(np.uint64)
        lengths = np.ones(len(found), np.int64)
        at, part, length = self.at[more], found[more], 1
        too_long = more[:0]
        while more.size:
            at, length = at + 1, length + 1
            read = data.take(at, mode="clip")
            part |= (read & 0x7F).astype(np.uint64) << np.uint64(7 * length - 7)
            goes_on = read >= 0x80
            if length == VARINT_BYTES_MAX:
                too_long = more[read > 1]  # the tenth byte has room for one bit
                goes_on[:] = False
            elif goes_on.all():
                continue
            ended = more[~goes_on]
            found[ended] = part[~goes_on]
            lengths[ended] = length
            more, at, part = more[goes_on], at[goes_on], part[goes_on]
        self.at = self.at + lengths
        if too_long.size:
            found[too_long] = 0
            wrong = np.zeros(len(found), np.bool_)
            wrong[too_long] = True
            self.fail(wrong, f"{where}: {TOO_LONG}")
        return (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64)

    def fixed(self, width: int) -> NDArray[np.uint8]:
        """The next ``width`` bytes of each row, as a matrix."""
        places = self.at[:, None] + np.arange(width)
        self.at = self.at + width
        return self.datums.data.take(places, mode="clip")

    def spans(self, where: str, size: int | None = None) -> tuple[Ints, Ints]:
        """Positions and sizes of the next bytes: after a length, or of a given size. Rows that were given up have 0."""
        if size is None:
            sizes = self.numbers(where)
            starts = self.at
        else:
            starts = self.at
            sizes = np.full(len(starts), size, np.int64)
            sizes[self.end == FAR] = 0
        room = self.end - starts
        if ((sizes < 0) | (sizes > room)).any():
            negative = sizes < 0
            if negative.any():
                self.fail(negative, f"{where}: a length below 0")
            self.fail(sizes > room, CUT_SHORT)
            sizes = np.where(self.end == FAR, 0, sizes)
        self.at = self.at + sizes
        return starts, sizes

    def binary(self, spans: tuple[Ints, Ints]) -> pa.Array:
        """The bytes at these ascending, disjoint positions; `klog.spark.columns` explains the method."""
        starts, sizes = spans
        count = len(starts)
        if self.datums.failed.any():
            # Rows that were given up have no position in the order: they take the end of the row before them.
            dead = self.datums.failed[self.rows]
            sizes = np.where(dead, 0, sizes)
            ends = np.maximum.accumulate(np.where(dead, 0, starts + sizes))
            starts = np.where(dead, ends, starts)
        bounds = np.zeros(2 * count + 1, np.int32)
        bounds[1::2] = starts
        bounds[2::2] = starts + sizes
        laid_over = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), self.datums.buffer])
        return laid_over.take(pa.array(np.arange(1, 2 * count, 2, dtype=np.int32)))

    def text(self, found: pa.Array, where: str) -> pa.Array:
        """Bytes as strings. Gives up rows that are not UTF-8."""
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([not _is_text(one) for one in found.to_pylist()], np.bool_)
            self.fail(wrong, f"{where}: {NO_TEXT}")
            return pc.if_else(pa.array(wrong), pa.scalar(b"", pa.binary()), found).cast(pa.string())


REASONS_MAX: Final = 20
"""How many different counts of left-over bytes get a reason each."""


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- Arrow arrays ---


def plain(values: NDArray[Any], type_: pa.DataType) -> pa.Array:
    """An array over values in the type's own layout, a row each, without a copy."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def put_together(parts: Sequence[pa.Array], index: Ints, nulls: Mask | None) -> pa.Array:
    """The values at ``index`` in the concatenation of ``parts``."""
    whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    return whole.take(pa.array(index, mask=nulls))
