"""The broker's access to the schema registry, in a few threads of its own.

While ZooKeeper is unreachable, each request waits for it as long as a session may be silent. In the broker's common
threads, a few requests for schemas would then delay its cold reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from klog.coordination.schemas import Schema, SchemaRegistry
from klog.coordination.zookeeper import ZooKeeper
from klog.schemas.registry import ZooKeeperRegistry

THREADS = 2

T = TypeVar("T")


class BrokerRegistry:
    """Event loop only, but for ``verbs``, which are thread-safe and block."""

    def __init__(self, zookeeper: ZooKeeper, has_room: Callable[[int], None]) -> None:
        """``has_room``: see `ZooKeeperRegistry`; any thread."""
        self._kept = SchemaRegistry(zookeeper)
        self.verbs = ZooKeeperRegistry(self._kept, has_room=has_room)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="schemas")

    async def schemas(self, ids: Sequence[int]) -> dict[int, Schema]:
        """The schemas that exist; from memory where all were read before, so also while ZooKeeper is unreachable."""
        found = self._kept.known(ids)
        return found if len(found) == len(set(ids)) else await self.ask(lambda verbs: verbs.schemas(ids))

    async def ask(self, question: Callable[[ZooKeeperRegistry], T]) -> T:
        """What the registry answers."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, question, self.verbs)

    def close(self) -> None:
        """Stop answering."""
        self._threads.shutdown(wait=False, cancel_futures=True)
