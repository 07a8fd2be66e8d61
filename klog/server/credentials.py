"""Users' SCRAM credentials in this broker's memory: read at the start, and again when ZooKeeper reports a change.

So an authentication needs no request to ZooKeeper, however many names are tried. Without a session, known users can
still log in; changes are read when there is one again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from queue import SimpleQueue
from typing import Final
from urllib.parse import unquote

from klog.coordination import paths
from klog.coordination import scram_credentials as registry
from klog.coordination.acts import Actor
from klog.coordination.scram_credentials import Credentials
from klog.coordination.zookeeper import WatchEvent
from klog.errors import SessionLost, ZooKeeperError
from klog.security.scram import ScramCredential, ScramMechanism
from klog.server.executors import Purpose
from klog.server.runtime import Runtime
from klog.server.watched_reads import WatchedReads

log = logging.getLogger(__name__)

PAUSE_S: Final = 0.05
_LIST: Final = ""
"""In place of a name: users have come or gone."""


class UserCredentials:
    """Event loop only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: dict[str, Credentials] = {}
        """Replaced as a whole, never changed."""
        self._usual: dict[ScramMechanism, ScramCredential | None] = {}
        """The cache of `usual`; cleared by each change."""
        self._is_loaded = False
        """A broker without SASL loads them at the first request about them."""
        self._loading = asyncio.Lock()
        self._doubted = SimpleQueue[str]()
        """Users to be read again."""
        self._reads = WatchedReads(runtime, "users' credentials", self._read, self._know, pause_s=PAUSE_S)

    def find(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        """A user's credential, or None. Any thread."""
        return self._known.get(name, {}).get(mechanism)

    def usual(self, mechanism: ScramMechanism) -> ScramCredential | None:
        """One with the most common salt length and iterations; None without any."""
        if mechanism not in self._usual:
            found = [one[mechanism] for one in self._known.values() if mechanism in one]
            counts = Counter((len(one.salt), one.iterations) for one in found)
            most = max(counts, key=lambda form: (counts[form], form), default=None)
            self._usual[mechanism] = next((one for one in found if (len(one.salt), one.iterations) == most), None)
        return self._usual[mechanism]

    def users(self) -> dict[str, Credentials]:
        """All users with credentials."""
        return {name: one for name, one in self._known.items() if one}

    async def load(self) -> None:
        """Read all, once. Raises KlogError if ZooKeeper cannot be read."""
        async with self._loading:
            if not self._is_loaded:
                self._know(await self._runtime.executors.run(Purpose.OTHER, self._read, True))
                self._is_loaded = True
                self._reads.begin()

    async def write(self, name: str, changes: dict[ScramMechanism, ScramCredential | None], actor: Actor) -> bool:
        """Write a user's credentials, and apply them here at once. False if one to remove does not exist."""
        await self.load()
        is_done = await self._runtime.at_zookeeper(Purpose.OTHER, registry.write, name, changes, actor)
        await self._look([name])
        return is_done

    async def catch_up(self, names: list[str]) -> None:
        """Read what any broker has written of these users. Raises KlogError if ZooKeeper cannot be read."""
        await self._runtime.executors.run(Purpose.OTHER, self._runtime.zookeeper.sync, paths.USER_CONFIGS)
        await self._look(names)

    async def _look(self, names: list[str]) -> None:
        for name in names:
            self._doubted.put(name)
        await self._reads.look()

    def _fired(self, event: WatchEvent) -> None:
        """The watch of the list and of each user, in ZooKeeper's thread."""
        is_list = event.path == paths.USER_CONFIGS
        self._doubted.put(_LIST if is_list else unquote(event.path.rpartition("/")[2]))
        self._reads.fired(event)

    def _read(self, is_all: bool) -> dict[str, Credentials]:
        """In a thread: all users, read again where they are doubted."""
        doubted = {self._doubted.get() for _ in range(self._doubted.qsize())}
        known = {} if is_all else self._known
        if not is_all and _LIST not in doubted:
            again = {name: self._user(name) for name in doubted}
            return known | {name: one for name, one in again.items() if one or name in known}
        names = registry.names(self._runtime.zookeeper, self._fired)
        return {name: known[name] if name in known and name not in doubted else self._user(name) for name in names}

    def _user(self, name: str) -> Credentials:
        """In a thread. {} if they do not parse. Raises SessionLost."""
        try:
            return registry.read(self._runtime.zookeeper, name, self._fired)
        except SessionLost:
            raise
        except ZooKeeperError as error:
            log.error("user %r cannot log in: %s", name, error.message)
            return {}

    def _know(self, known: dict[str, Credentials]) -> bool:
        self._known, self._usual = known, {}
        return False
