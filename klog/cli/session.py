"""The event loop and the connections of commands.

A command line has a `Session` of its own, which ends with it. The shell hands each of its commands the same one (in
`GlobalFlags`), so that they need not connect again. What the shell asks for itself, names and the facts of its toolbar,
goes through a second one: no command waits for it.

Rules
    * A connection that has ended is opened again, and its cluster id is then compared again.
    * No command sees what an earlier one has read: metadata are read by each command.
    * Ctrl-C in the middle of a command closes the loop and its connections, whose state is then unknown.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from klog.coordination.zookeeper_access import ZooKeeperAccess, access_of
from klog.render.visible import for_stream
from klog.security.client_security import ClientSecurity

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.coordination.zookeeper import ZooKeeper

T = TypeVar("T")


class Session:
    """An event loop and its open connections. Used by one thread."""

    def __init__(self, *, trace: bool = False) -> None:
        """``trace``: every request answered and znode touched is told on stderr."""
        self._trace = trace
        self._runner: asyncio.Runner | None = None
        self._clusters: dict[tuple[str, ClientSecurity, str, float, str], Cluster] = {}
        self._zookeepers: dict[tuple[str, ZooKeeperAccess, float], ZooKeeper] = {}
        self._opening = asyncio.Lock()

    @property
    def clusters(self) -> list[Cluster]:
        """The open connections."""
        return list(self._clusters.values())

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """End the connections of one that was not `run`."""
        await self.close_clusters()
        await asyncio.to_thread(self.stop_zookeepers)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to the end, as ``asyncio.run`` does; the connections stay open."""
        if self._runner is None:
            self._runner = asyncio.Runner()
            self._opening = asyncio.Lock()
        try:
            return self._runner.run(self._alone(main))
        except KeyboardInterrupt:
            self._close_loop()
            raise

    async def _alone(self, main: Coroutine[Any, Any, T]) -> T:
        """``main``; tasks that it leaves behind are cancelled, but for those of the connections."""
        before = asyncio.all_tasks()
        try:
            return await main
        finally:
            ours = {task for cluster in self._clusters.values() for task in cluster.tasks()}
            left = asyncio.all_tasks() - before - ours
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)

    async def cluster(
        self, servers: str, source: str, timeout_s: float, client_id: str, expected_cluster_id: str | None
    ) -> Cluster:
        """The open connection, or a new one; WrongCluster where it leads to another cluster than is expected."""
        from klog.client.cluster import Cluster
        from klog.client.servers import security_of

        key = (servers, security_of(servers), source, timeout_s, client_id)
        async with self._opening:
            known = self._clusters.pop(key, None)
            if known is not None and not await known.resume():
                await known.close()
                known = None
            if known is None:
                trace = _to_stderr if self._trace else None
                known = await Cluster.connect(
                    servers, source=source, timeout_s=timeout_s, client_id=client_id, trace=trace
                )
            self._clusters[key] = known
            if expected_cluster_id is not None:
                await known.check_id(expected_cluster_id)
            return known

    async def zookeeper(self, address: str, timeout_s: float, *, create_chroot: bool = False) -> ZooKeeper:
        """The session with ZooKeeper where it is connected, or a new one."""
        from klog.client.cluster import CONNECT_TIMEOUT_S
        from klog.coordination.session import SessionState
        from klog.coordination.zookeeper import ZooKeeper

        key = (str(address), access_of(address), timeout_s)
        async with self._opening:
            known = self._zookeepers.pop(key, None)
            if known is not None and known.state is not SessionState.CONNECTED:
                # Ending it may take as long as ZooKeeper is silent.
                threading.Thread(target=known.stop, name="zookeeper-stop", daemon=True).start()
                known = None
            if known is None:
                known = ZooKeeper(
                    address,
                    operation_timeout_s=timeout_s,
                    trace=(lambda what, path, ms: _to_stderr(what, f"zookeeper {path}", ms)) if self._trace else None,
                )
                await asyncio.to_thread(known.start, CONNECT_TIMEOUT_S, patient=False, create_chroot=create_chroot)
            self._zookeepers[key] = known
            return known

    async def close_clusters(self) -> None:
        """End the connections to brokers. Event loop only."""
        clusters, self._clusters = list(self._clusters.values()), {}
        for cluster in clusters:
            await cluster.close()

    def close(self) -> None:
        """End everything; may be called twice."""
        if self._runner is not None and self._clusters:
            self._runner.run(self.close_clusters())
        self._close_loop()
        self.stop_zookeepers()

    def stop_zookeepers(self) -> None:
        """End the sessions with ZooKeeper."""
        sessions, self._zookeepers = list(self._zookeepers.values()), {}
        for session in sessions:
            session.stop()

    def _close_loop(self) -> None:
        runner, self._runner = self._runner, None
        self._clusters = {}
        if runner is not None:
            runner.close()


def _to_stderr(what: str, where: str, ms: float) -> None:
    """Called from the thread that asked."""
    sys.stderr.write(for_stream(f"trace {ms:9.1f} ms  {what}  {where}\n", sys.stderr))
