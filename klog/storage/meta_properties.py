"""``meta.properties`` of a log dir: its owner, in lines of ``name=value``. Readable by the file's owner only.

    version=0
    directory.id      a UUID of the dir, from its first use on
    cluster.id        its cluster
    broker.id         its broker
    cluster.secret    by which the cluster's brokers recognise one another (rule R10); the other copy is in ZooKeeper

The first four are Kafka's. Lines under other names are kept. Written as a whole and durably.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID, uuid4

from klog.errors import CorruptLog, Refused
from klog.names import parse_uuid, uuid_text
from klog.secret import Secret
from klog.storage.filesystem import FileSystem

NAME: Final = "meta.properties"
VERSION: Final = "0"

DIRECTORY_ID: Final = "directory.id"
CLUSTER_ID: Final = "cluster.id"
BROKER_ID: Final = "broker.id"
CLUSTER_SECRET: Final = "cluster.secret"


class MetaProperties:
    """The file of one log dir, as last read or written. Owner thread only. Raises Refused for another version."""

    def __init__(self, file_system: FileSystem, folder: str) -> None:
        self._file_system = file_system
        self.path = f"{folder}/{NAME}"
        self._pairs = _parse(file_system.read(self.path) or b"")
        version = self._pairs.get("version", VERSION)
        if version != VERSION:
            raise Refused(
                f"log dir {folder} has the layout of version {version} (in {NAME}), this klog serves version {VERSION}",
                hint="start the klog or the Kafka that wrote it, or give another log dir",
            )
        if DIRECTORY_ID not in self._pairs:
            self.write({DIRECTORY_ID: uuid_text(uuid4())})

    @property
    def directory_id(self) -> UUID:
        """Raises CorruptLog if it is not a UUID."""
        found = parse_uuid(self._pairs[DIRECTORY_ID])
        if found is None:
            raise CorruptLog(f"{self.path}: {DIRECTORY_ID} {self._pairs[DIRECTORY_ID]!r} is not a UUID")
        return found

    @property
    def cluster_id(self) -> str | None:
        return self._pairs.get(CLUSTER_ID)

    @property
    def broker_id(self) -> int | None:
        text = self._pairs.get(BROKER_ID, "")
        return int(text) if text.isdecimal() else None

    @property
    def secret(self) -> Secret | None:
        """Raises CorruptLog if it does not parse."""
        text = self._pairs.get(CLUSTER_SECRET)
        if text is None:
            return None
        try:
            return Secret.parse(text)
        except ValueError as error:
            raise CorruptLog(
                f"{self.path}: {CLUSTER_SECRET} is {error}",
                hint="remove the line: the broker takes ZooKeeper's copy over when it starts",
            ) from None

    def write(self, more: Mapping[str, str]) -> None:
        """Add or replace these lines, durably."""
        self._replace({"version": VERSION, **self._pairs, **more})

    def keep_only(self, *names: str) -> None:
        """Remove all lines but those under these names, durably."""
        self._replace({name: value for name, value in self._pairs.items() if name in ("version", *names)})

    def _replace(self, pairs: dict[str, str]) -> None:
        text = "".join(f"{key}={value}\n" for key, value in pairs.items())
        self._file_system.replace(self.path, text.encode(), private=True)
        self._pairs = pairs


def _parse(data: bytes) -> dict[str, str]:
    pairs = (line.partition("=") for line in data.decode("utf-8", "replace").splitlines() if line[:1] != "#")
    return {key.strip(): value.strip() for key, _, value in pairs if key.strip()}
