"""Where a streaming query began, kept in a folder of its own (the option ``stateLocation``).

Spark asks a source for its initial offsets several times and writes them down nowhere: its checkpoint has only the end
of each batch. klog's ends say where the first batch began (`klog.spark.stream_offsets`), so a query needs this no more;
with it, the beginning stands fast before there is any batch, put if absent, before Spark hears of it.

Layout: ``<stateLocation>/initial-offsets.json``, written once and never changed:

    {"version": 1, "clusterId": "…", "offsets": {…}, "topicIds": {…}}     as in `klog.spark.stream_offsets`

The folder lies wherever exports may (`klog.export.stores`). Spark's planner, which this runs in, has no way to
Spark's JVM: Hadoop's file systems get a small one of their own, which ends with the planner.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from klog.errors import KlogError, Refused, UsageError
from klog.export.stores.local import LocalStore
from klog.export.stores.opening import open_store
from klog.export.stores.store import SCHEME, Store
from klog.spark.running import hadoop
from klog.spark.stream_offsets import StreamOffsets

FILE: Final = "initial-offsets.json"
VERSION: Final = 1

hadoop.register_stores()


class InitialOffsets:
    """The file in one folder. Any number of processes may race for it: one wins, all read the winner's."""

    def __init__(self, location: str) -> None:
        """``location``: a path of the driver's machine, or a URL, opened when it is needed. UsageError for nothing."""
        if not location.strip():
            raise UsageError('option "stateLocation" names no folder')
        self._location = location

    @cached_property
    def _store(self) -> Store:
        try:
            return open_folder(self._location)
        except KlogError as error:
            raise UsageError(f'option "stateLocation": {error.message}', hint=error.hint) from None

    def read_or_create(self, cluster_id: str | None, resolve: Callable[[], StreamOffsets]) -> StreamOffsets:
        """What is kept; where nothing is, what ``resolve`` says, durably kept before this returns.

        Refused where the file is another cluster's, from a newer klog, or no such file at all, or where the store
        cannot tell which of two came first. UsageError for a URL of an unknown scheme, or if a package that it
        needs is not installed. StorageError.
        """
        kept = self._read(cluster_id)
        if kept is not None:
            return kept
        value = {"version": VERSION, "clusterId": cluster_id, **resolve().to_json()}
        try:
            self._store.create(FILE, json.dumps(value, indent=1).encode())
        except Refused as error:
            raise Refused(f'option "stateLocation": {error.message}', hint="name a folder elsewhere") from None
        kept = self._read(cluster_id)
        if kept is None:
            raise Refused(
                f"{self._file} was removed while it was made", hint="does another program clean up the folder?"
            )
        return kept

    @property
    def _file(self) -> str:
        return self._store.location(FILE)

    def _read(self, cluster_id: str | None) -> StreamOffsets | None:
        data = self._store.read(FILE)
        if data is None:
            return None
        try:
            value = json.loads(data)
            version = value["version"]
        except (ValueError, KeyError, TypeError):
            raise Refused(
                f"{self._file} is not a file of initial offsets",
                hint="give stateLocation a folder of its own, or bring the file back from a backup",
            ) from None
        if version != VERSION:
            raise Refused(f"{self._file} has version {version}; this klog reads version {VERSION}")
        known = value.get("clusterId")
        if known is not None and cluster_id is not None and known != cluster_id:
            raise Refused(
                f"{self._file} is of the cluster {known}, and this is {cluster_id}",
                hint="a query on another cluster needs a checkpointLocation and a stateLocation of its own",
            )
        return StreamOffsets.from_json(value, self._file)


def open_folder(location: str) -> Store:
    """A folder of a query's: a path of this machine, or a URL. Errors of `open_store`."""
    match = SCHEME.fullmatch(location)
    if match is None:
        return LocalStore(Path(location).expanduser().absolute())
    if match[1].lower() == "file":
        folder = unquote(re.sub(r"^//[^/]*", "", match[2]) if match[2].startswith("//") else match[2])
        return LocalStore(Path(folder).absolute())
    return open_store(location)
