"""The broker's hold on the registry of schemas: in threads of its own, few of them.

While ZooKeeper is away each request waits for it as long as a session may be silent. In the threads that everything
else of a broker shares, a few readers of messages would then hold up its cold reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from klog.coordination.schemas import Schema, SchemaRegistry
from klog.coordination.zookeeper import ZooKeeper
from klog.ops.schemas.registry import ZooKeeperRegistry

THREADS = 2

T = TypeVar("T")


class BrokerRegistry:
    """Event loop only, but for ``verbs``, which are thread-safe and block."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._kept = SchemaRegistry(zookeeper)
        self.verbs = ZooKeeperRegistry(self._kept)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="schemas")

    async def schemas(self, ids: Sequence[int]) -> dict[int, Schema]:
        """Those there are; without a thread where all have been read before, so also while ZooKeeper is away."""
        found = self._kept.known(ids)
        return found if len(found) == len(set(ids)) else await self.ask(lambda verbs: verbs.schemas(ids))

    async def ask(self, question: Callable[[ZooKeeperRegistry], T]) -> T:
        """What the registry answers."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, question, self.verbs)

    def close(self) -> None:
        """Answer nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
