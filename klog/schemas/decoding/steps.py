"""Reading one value of each of many datums at once: a step for each kind of type, made by `klog.schemas.decoding.plan`.

A step knows the writer's type and its column. `read` takes the next value of every row of a front and returns an array
with one value per row; rows that were given up have any value. `skip` only moves the positions. `skip_one` moves one
position in plain Python: for few rows (one long array) that is faster than numpy's calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from klog.schemas.decoding.front import TOO_LONG, VARINT_BYTES_MAX, Front, Ints, plain, put_together

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


class Undecodable(Exception):
    """`skip_one` found an invalid value."""


class Step(ABC):
    """``bytes_min``: no value takes fewer. ``bytes_all``: every value takes as many; None where they differ."""

    type: pa.DataType
    bytes_min: int = 1
    bytes_all: int | None = None
    is_number: bool = False
    """The value is one variable-length number."""

    def __init__(self, type_: pa.DataType, where: str) -> None:
        self.type = type_
        self.where = where

    @abstractmethod
    def read(self, front: Front) -> pa.Array: ...

    def skip(self, front: Front) -> None:
        """Of values of one size, and of numbers."""
        if self.bytes_all is None:
            front.numbers(self.where)
        else:
            front.at = front.at + self.bytes_all

    def skip_one(self, data: memoryview, at: int, end: int) -> int:
        """The place behind the value at ``at``, which can lie behind ``end``. Undecodable, IndexError."""
        return number_at(data, at)[1] if self.bytes_all is None else at + self.bytes_all


class Nothing(Step):
    """No bytes; null."""

    bytes_min = 0
    bytes_all = 0

    def read(self, front: Front) -> pa.Array:
        return pa.nulls(len(front), self.type)


class Refuse(Step):
    """The types do not match: gives up every row with such a value."""

    bytes_min = 0

    def __init__(self, type_: pa.DataType, where: str, reason: str) -> None:
        super().__init__(type_, where)
        self.reason = f"{where}: {reason}"

    def read(self, front: Front) -> pa.Array:
        self.skip(front)
        return pa.nulls(len(front), self.type)

    def skip(self, front: Front) -> None:
        front.fail(np.ones(len(front), np.bool_), self.reason)

    def skip_one(self, data: memoryview, at: int, end: int) -> int:
        raise Undecodable(self.reason)


class Boolean(Step):
    bytes_all = 1

    def read(self, front: Front) -> pa.Array:
        found = front.fixed(1)[:, 0]
        if (bad := found > 1).any():
            front.fail(bad, f"{self.where}: a boolean that is neither 0 nor 1")
        return pa.array(found == 1)


class Number(Step):
    """A variable-length number as an integer, a real number, or a time: ``dtype`` is how the column lies in memory.

    ``low`` and ``high`` bound what was written; ``factor`` brings its unit to the column's.
    """

    is_number = True

    def __init__(
        self,
        type_: pa.DataType,
        where: str,
        dtype: type[np.generic],
        *,
        low: int = LONG_MIN,
        high: int = LONG_MAX,
        factor: int = 1,
    ) -> None:
        super().__init__(type_, where)
        self.dtype = dtype
        self.low = max(low, -(LONG_MAX // factor)) if factor > 1 else low
        self.high = min(high, LONG_MAX // factor)
        self.factor = factor

    def read(self, front: Front) -> pa.Array:
        found = front.numbers(self.where)
        if self.low != LONG_MIN or self.high != LONG_MAX:
            bad = (found < self.low) | (found > self.high)
            if bad.any():
                front.fail(bad, f"{self.where}: a number beyond its type")
                found = np.where(bad, 0, found)
        if self.factor != 1:
            found = found * self.factor
        return plain(found.astype(self.dtype, copy=False), self.type)


class Real(Step):
    """A float or a double."""

    def __init__(self, type_: pa.DataType, where: str, written: str, wanted: type[np.generic]) -> None:
        super().__init__(type_, where)
        self.written = np.dtype(written)
        self.wanted = wanted
        self.bytes_min = self.bytes_all = self.written.itemsize

    def read(self, front: Front) -> pa.Array:
        found = front.fixed(self.written.itemsize).view(self.written)[:, 0]
        with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
            return plain(found.astype(self.wanted, copy=False), self.type)


class Blob(Step):
    """Bytes behind a length, or of a given ``size``, as binary or string; ``is_text``: they must be UTF-8."""

    def __init__(self, type_: pa.DataType, where: str, *, is_text: bool = False, size: int | None = None) -> None:
        super().__init__(type_, where)
        self.is_text = is_text
        self.size = size
        self.bytes_all = size
        self.bytes_min = 1 if size is None else size

    def read(self, front: Front) -> pa.Array:
        found = front.binary(front.spans(self.where, self.size))
        if not self.is_text:
            return found
        text = front.text(found, self.where)
        return text if self.type == text.type else text.cast(self.type)

    def skip(self, front: Front) -> None:
        front.spans(self.where, self.size)

    def skip_one(self, data: memoryview, at: int, end: int) -> int:
        if self.size is not None:
            return super().skip_one(data, at, end)
        size, at = number_at(data, at)
        if size < 0:
            raise Undecodable(f"{self.where}: a length below 0")
        return at + size


class Decimal(Blob):
    """Big-endian two's complement bytes as a decimal. Gives up numbers with more digits than the column."""

    def read(self, front: Front) -> pa.Array:
        starts, sizes = front.spans(self.where, self.size)
        width = self.type.byte_width
        data = front.datums.data
        last = starts + sizes - 1
        first = data.take(starts, mode="clip")
        fill = np.where((first >= 0x80) & (sizes > 0), 0xFF, 0).astype(np.uint8)
        steps = np.arange(width)
        found = data.take(np.maximum(last[:, None] - steps, 0), mode="clip")
        found = np.where(steps < sizes[:, None], found, fill[:, None])
        limit = 10**self.type.precision
        if (long := np.flatnonzero(sizes > width)).size:
            for row in long:  # most often padding
                value = int.from_bytes(data[starts[row] : starts[row] + sizes[row]].tobytes(), "big", signed=True)
                if abs(value) < limit:
                    found[row] = np.frombuffer(value.to_bytes(width, "little", signed=True), np.uint8)
                else:
                    found[row] = _largest(width)
        if (bad := _reaches(found, limit)).any():
            front.fail(bad, f"{self.where}: a decimal of more than {self.type.precision} digits")
            found[bad] = 0
        return plain(found, self.type)


def _largest(width: int) -> NDArray[np.uint8]:
    return np.frombuffer((2 ** (8 * width - 1) - 1).to_bytes(width, "little"), np.uint8)


def _reaches(numbers: NDArray[np.uint8], limit: int) -> NDArray[np.bool_]:
    """Which little-endian two's complement numbers lie beyond -limit < x < limit."""
    words = numbers.view("<u8")
    below = words[:, -1].view(np.int64) < 0
    # Of a negative number the complement is -x - 1, so that it must stay below limit - 1.
    sizes = np.where(below[:, None], ~words, words)
    over = np.zeros(len(words), np.bool_)
    same = np.ones(len(words), np.bool_)
    bounds = np.where(below, np.uint64(1), np.uint64(0))
    for word in range(words.shape[1] - 1, -1, -1):
        part = (limit >> (64 * word)) & (2**64 - 1)
        borrowed = ((limit - 1) >> (64 * word)) & (2**64 - 1)
        bound = np.where(bounds == 1, np.uint64(borrowed), np.uint64(part))
        over |= same & (sizes[:, word] > bound)
        same &= sizes[:, word] == bound
    return over | same


class Uuid(Blob):
    """16 bytes as their text."""

    def read(self, front: Front) -> pa.Array:
        rows = len(front)
        found = front.fixed(16)
        text = np.full((rows, 36), ord("-"), np.uint8)
        text[:, _UUID_PLACES] = _HEX.take(np.stack([found >> 4, found & 15], axis=2).reshape(rows, 32))
        bounds = np.arange(0, 36 * rows + 36, 36, dtype=np.int32)
        return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(bounds), pa.py_buffer(text)])


_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID_PLACES: Final = [place for place in range(36) if place not in (8, 13, 18, 23)]


class Duration(Blob):
    """Three unsigned little-endian numbers: months, days, milliseconds."""

    def read(self, front: Front) -> pa.Array:
        parts = front.fixed(12).view("<u4").astype(np.int64)
        return pa.StructArray.from_arrays(
            [plain(parts[:, number], pa.int64()) for number in range(3)], fields=list(self.type)
        )


class Enum(Step):
    """A symbol's number as text. ``numbers``: of each symbol written, its place in ``symbols``, or -1."""

    is_number = True

    def __init__(self, where: str, numbers: Sequence[int], symbols: Sequence[str]) -> None:
        super().__init__(pa.string(), where)
        self.numbers = np.array(numbers, np.int64)
        self.symbols = pa.array(symbols, pa.string())

    def read(self, front: Front) -> pa.Array:
        found = front.numbers(self.where)
        bad = (found < 0) | (found >= len(self.numbers))
        if bad.any():
            front.fail(bad, f"{self.where}: an enum's number beyond its {len(self.numbers)} symbols")
        if not len(self.numbers):
            return pa.nulls(len(found), self.type)
        places = self.numbers.take(found, mode="clip")
        unknown = places < 0
        if unknown.any():
            front.fail(unknown, f"{self.where}: a symbol that the reader's enum does not have")
        return self.symbols.take(pa.array(places, mask=unknown))


class Record(Step):
    """``written``: of each field in the order written, its place among the columns (None: not wanted) and its step.

    ``defaults``: an array of one value for each column that was not written.
    """

    def __init__(
        self,
        type_: pa.DataType,
        where: str,
        written: Sequence[tuple[int | None, Step]],
        defaults: dict[int, pa.Array],
    ) -> None:
        super().__init__(type_, where)
        self.written = written
        self.defaults = defaults
        self.bytes_min = sum(step.bytes_min for _, step in written)
        sizes = [step.bytes_all for _, step in written]
        self.bytes_all = None if None in sizes else sum(size or 0 for size in sizes)

    def read(self, front: Front) -> pa.Array:
        rows = len(front)
        found: dict[int, pa.Array] = {}
        for place, step in self.written:
            if place is None:
                step.skip(front)
            else:
                found[place] = step.read(front)
        for place, default in self.defaults.items():
            found[place] = default.take(pa.array(np.zeros(rows, np.int64)))
        if not found:
            return pa.array(np.ones(rows, np.bool_))
        return pa.StructArray.from_arrays([found[place] for place in sorted(found)], fields=list(self.type))

    def skip(self, front: Front) -> None:
        for _, step in self.written:
            step.skip(front)

    def skip_one(self, data: memoryview, at: int, end: int) -> int:
        for _, step in self.written:
            at = step.skip_one(data, at, end)
        return at


class Union(Step):
    """The number of a branch, and its value. All branches' steps return the reader's type."""

    def __init__(self, type_: pa.DataType, where: str, branches: Sequence[Step]) -> None:
        super().__init__(type_, where)
        self.branches = branches
        self.bytes_min = 1 + min(branch.bytes_min for branch in branches)

    def read(self, front: Front) -> pa.Array:
        chosen, counts = self._chosen(front)
        rows = len(chosen)
        if len(present := np.flatnonzero(counts).tolist()) == 1:
            return self.branches[present[0]].read(front)
        index = np.zeros(rows, np.int64)
        nulls = np.zeros(rows, np.bool_)
        parts: list[pa.Array] = []
        base = 0
        for number in present:
            branch = self.branches[number]
            where = np.flatnonzero(chosen == number)
            if isinstance(branch, Nothing):
                nulls[where] = True
                continue
            part = front.some(where)
            parts.append(branch.read(part))
            front.put(where, part)
            index[where] = np.arange(base, base + len(where))
            base += len(where)
        if not parts:
            return pa.nulls(rows, self.type)
        return put_together(parts, index, nulls if nulls.any() else None)

    def skip(self, front: Front) -> None:
        chosen, counts = self._chosen(front)
        for number in np.flatnonzero(counts).tolist():
            branch = self.branches[number]
            if isinstance(branch, Nothing):
                continue
            where = np.flatnonzero(chosen == number)
            part = front.some(where)
            branch.skip(part)
            front.put(where, part)

    def _chosen(self, front: Front) -> tuple[Ints, Ints]:
        """Each row's branch, and how many rows have each."""
        chosen = front.numbers(self.where)
        bad = (chosen < 0) | (chosen >= len(self.branches))
        if bad.any():
            front.fail(bad, f"{self.where}: a union's branch beyond its {len(self.branches)}")
            chosen = np.where(bad, 0, chosen)
        return chosen, np.bincount(chosen, minlength=len(self.branches))

    def skip_one(self, data: memoryview, at: int, end: int) -> int:
        number, at = number_at(data, at)
        if not 0 <= number < len(self.branches):
            raise Undecodable(f"{self.where}: a union's branch beyond its {len(self.branches)}")
        return self.branches[number].skip_one(data, at, end)


class Member(Step):
    """A value that becomes one member of a struct of the reader's union."""

    def __init__(self, type_: pa.DataType, step: Step, member: int) -> None:
        super().__init__(type_, step.where)
        self.step = step
        self.member = member
        self.bytes_min, self.bytes_all, self.is_number = step.bytes_min, step.bytes_all, step.is_number

    def read(self, front: Front) -> pa.Array:
        found = self.step.read(front)
        return pa.StructArray.from_arrays(
            [
                found if number == self.member else pa.nulls(len(found), field.type)
                for number, field in enumerate(self.type)
            ],
            fields=list(self.type),
        )

    def skip(self, front: Front) -> None:
        self.step.skip(front)

    def skip_one(self, data: memoryview, at: int, end: int) -> int:
        return self.step.skip_one(data, at, end)


def number_at(data: memoryview, at: int) -> tuple[int, int]:
    """The variable-length number at ``at``, and the place behind it. IndexError, Undecodable."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    found = byte & 0x7F
    for shift in range(7, 7 * VARINT_BYTES_MAX, 7):
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    if byte >= 0x80 or found >= 2**64:
        raise Undecodable(TOO_LONG)
    return (found >> 1) ^ -(found & 1), at
