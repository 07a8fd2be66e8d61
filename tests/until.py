"""Waiting for what nobody tells of: it is looked for again and again, for a limited time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

WITHIN_S = 40.0
"""What is waited for comes within a second or two; a busy machine gets more."""
PAUSE_S = 0.005

Found = TypeVar("Found")


def until(look: Callable[[], Found], what: str | Callable[[], str] = "", timeout_s: float = WITHIN_S) -> Found:
    """The first that ``look`` finds and that is true. ``what``: for the error, or a function that tells more of it.

    The pauses are as long as a look takes: a command is a tenth of a second's work.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()
        if found := look():
            return found
        now = time.monotonic()
        assert now < deadline, f"not within {timeout_s:g} s: {what() if callable(what) else what}"
        time.sleep(max(PAUSE_S, now - began))


async def until_async(look: Callable[[], object], timeout_s: float = WITHIN_S) -> None:
    """As `until`, of what others on the loop make true."""
    deadline = time.monotonic() + timeout_s
    while not look():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s"
        await asyncio.sleep(PAUSE_S)
