"""Users' SCRAM credentials in this broker's memory: read at the start, and again when ZooKeeper reports a change.

So an authentication needs no request to ZooKeeper, however many names are tried. Without a session, known users can
still log in; changes are read when there is one again.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from klog.coordination import paths
from klog.coordination import scram_credentials as registry
from klog.coordination.acts import Actor
from klog.errors import KlogError, SessionLost, ZooKeeperError
from klog.security.scram import ScramCredential, ScramMechanism
from klog.server.executors import Purpose
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 1.0
READ_AT_ONCE: Final = 100


class UserCredentials:
    """Event loop only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: dict[str, registry.Credentials] = {}
        self._usual: dict[ScramMechanism, ScramCredential | None] = {}
        """The cache of `usual`; cleared by each change."""
        self._is_loaded = False
        """A broker without SASL loads them at the first request about them."""
        self._doubted: set[str] = set()
        """Users to be read again."""
        self._list_is_doubted = False
        self._is_reading = False

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

    def users(self) -> dict[str, registry.Credentials]:
        """All users with credentials."""
        return {name: one for name, one in self._known.items() if one}

    async def load(self) -> None:
        """Read all, once. Raises KlogError if ZooKeeper cannot be read."""
        if not self._is_loaded:
            self._know(await self._runtime.executors.run(Purpose.OTHER, self._read_all, {}))
            self._is_loaded = True

    async def write(self, name: str, changes: dict[ScramMechanism, ScramCredential | None], actor: Actor) -> bool:
        """Write a user's credentials, and apply them here at once. False if one to remove does not exist."""
        is_done = await self._runtime.executors.run(
            Purpose.OTHER, registry.write, self._runtime.zookeeper, name, changes, actor
        )
        await self._look(name)
        return is_done

    async def catch_up(self, names: list[str]) -> None:
        """Read what any broker has written of these users. Raises KlogError if ZooKeeper cannot be read."""
        written = await self._runtime.executors.run(Purpose.OTHER, self._read_latest, names)
        for name, found in written.items():
            if found != self._known.get(name, {}):
                await self._look(name)

    def _read_latest(self, names: list[str]) -> dict[str, registry.Credentials]:
        """In a thread. Without watches: each would stay until the next change."""
        zookeeper = self._runtime.zookeeper
        zookeeper.sync(paths.USER_CONFIGS)
        return {name: registry.read(zookeeper, name) for name in names}

    def _read_all(self, known: dict[str, registry.Credentials]) -> dict[str, registry.Credentials]:
        """In a thread: those of ``known``, which are watched already, and new ones; without removed ones."""
        names = registry.names(self._runtime.zookeeper, lambda _: self._runtime.from_thread(self._list_changed))
        return {name: known[name] if name in known else self._read(name) for name in names}

    def _read(self, name: str) -> registry.Credentials:
        """In a thread. {} if they do not parse. Raises SessionLost."""
        try:
            return registry.read(
                self._runtime.zookeeper, name, lambda _: self._runtime.from_thread(self._changed, name)
            )
        except SessionLost:
            raise
        except ZooKeeperError as error:
            log.error("user %r cannot log in: %s", name, error.message)
            return {}

    def _read_some(self, names: list[str]) -> dict[str, registry.Credentials]:
        """In a thread."""
        return {name: self._read(name) for name in names}

    def _list_changed(self) -> None:
        self._list_is_doubted = True
        self._read_again()

    def _changed(self, name: str) -> None:
        self._doubted.add(name)
        self._read_again()

    def _read_again(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._runtime.spawn(self._until_read())

    async def _until_read(self) -> None:
        """Read users until none is doubted; the end of a session makes all doubted. One log line per try."""
        try:
            while (self._doubted or self._list_is_doubted) and not self._runtime.is_stopping:
                is_list, self._list_is_doubted = self._list_is_doubted, False
                names = sorted(self._doubted)[:READ_AT_ONCE]
                self._doubted.difference_update(names)
                try:
                    await self._read_doubted(names, is_list=is_list)
                except KlogError as error:
                    self._doubted.update(names)
                    self._list_is_doubted |= is_list
                    log.warning("the users' credentials cannot be read: %s; trying again", error.message)
                    await self._runtime.pause(LOOK_AGAIN_S)
        finally:
            self._is_reading = False

    async def _read_doubted(self, names: list[str], *, is_list: bool) -> None:
        """Read these users; before them, if the list is doubted, new ones. Raises KlogError."""
        run = self._runtime.executors.run
        if is_list:
            found = await run(Purpose.OTHER, self._read_all, dict(self._known))
            self._know({name: self._known.get(name, one) for name, one in found.items()})
        again = await run(Purpose.OTHER, self._read_some, names)
        self._know({**self._known, **again})

    async def _look(self, name: str) -> None:
        self._known[name] = await self._runtime.executors.run(Purpose.OTHER, self._read, name)
        self._usual = {}

    def _know(self, known: dict[str, registry.Credentials]) -> None:
        self._known = known
        self._usual = {}
