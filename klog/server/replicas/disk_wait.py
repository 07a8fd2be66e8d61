"""Waits for work at the disks, but not for a disk that hangs until it is taken offline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from klog.errors import RequestTimedOut
from klog.server.executors import Executors, Purpose
from klog.storage.log_dir import LogDirs

P = ParamSpec("P")
T = TypeVar("T")

LOOK_EVERY_S: Final = 0.25


async def at_disks(
    executors: Executors, log_dirs: LogDirs, work: Callable[P, T], *arguments: P.args, **named: P.kwargs
) -> T:
    """Run ``work`` in a thread and return its result.

    Raises RequestTimedOut if a log dir hangs and goes offline meanwhile. The controller then repeats its request, which
    is carried out without that log dir.
    """

    def given_up() -> set[str]:
        return {one.path for one in log_dirs.dirs if one.failure is not None and one.is_stalled}

    before = given_up()
    doing = asyncio.ensure_future(executors.run(Purpose.REPLICAS, work, *arguments, **named))
    while not (await asyncio.wait((doing,), timeout=LOOK_EVERY_S))[0]:
        if given_up() - before:
            doing.cancel()
            raise RequestTimedOut("a log dir does not answer, and is offline now")
    return doing.result()
