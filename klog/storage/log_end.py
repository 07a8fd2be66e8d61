"""The end of a log, as an address and as an offset."""

from __future__ import annotations

from typing import NamedTuple


class LogEnd(NamedTuple):
    """``address``: where the next batch will start. ``offset``: the last record's offset + 1, for consumers.

    They differ because a batch takes as many addresses as it has bytes and only as many offsets as it has records.
    """

    address: int
    offset: int
