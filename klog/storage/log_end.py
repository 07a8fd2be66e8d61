"""Where a log ends, in the two words for it."""

from __future__ import annotations

from typing import NamedTuple


class LogEnd(NamedTuple):
    """The end as an address and as a consumer sees it.

    ``address`` is where the next batch will start; ``offset`` the last record's offset + 1. They differ because a batch
    takes as many addresses as it has bytes and only as many offsets as it has records.
    """

    address: int
    offset: int
