"""Where a streaming query began, kept in a folder of its own (the option ``stateLocation``).

Spark asks a source for its initial offsets several times and writes them down nowhere: its checkpoint has only the end
of each batch. A first batch that fails and is run again would begin where the source then says, and what came in
between ("latest") would be read by nobody. So klog keeps them itself, put if absent, before Spark hears of them.

Layout: ``<stateLocation>/initial-offsets.json``, written once and never changed:

    {"version": 1, "clusterId": "…", "offsets": {…}, "topicIds": {…}}     as in `klog.spark.stream_offsets`
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from klog.errors import Refused, UsageError
from klog.spark.stream_offsets import StreamOffsets
from klog.storage.filesystem import OsFileSystem, translated

FILE: Final = "initial-offsets.json"
VERSION: Final = 1
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


class InitialOffsets:
    """The file in one folder. Any number of processes may race for it: one wins, all read the winner's."""

    def __init__(self, location: str) -> None:
        """``location`` is a path or a ``file:`` URL of the driver's machine; UsageError for other stores."""
        self.path = _local_folder(location) / FILE
        self._files = OsFileSystem()

    def read_or_create(self, cluster_id: str | None, resolve: Callable[[], StreamOffsets]) -> StreamOffsets:
        """What is kept; where nothing is, what ``resolve`` says, durably kept before this returns.

        Refused where the file is another cluster's, from a newer klog, or no such file at all. StorageError.
        """
        kept = self._read(cluster_id)
        if kept is not None:
            return kept
        self._create(cluster_id, resolve())
        kept = self._read(cluster_id)
        if kept is None:
            raise Refused(f"{self.path} was removed while it was made", hint="does somebody clean up the folder?")
        return kept

    def _read(self, cluster_id: str | None) -> StreamOffsets | None:
        data = self._files.read(str(self.path))
        if data is None:
            return None
        try:
            value = json.loads(data)
            version = value["version"]
        except (ValueError, KeyError, TypeError):
            raise Refused(
                f"{self.path} is no file of initial offsets",
                hint="give stateLocation a folder of its own, or bring the file back from a backup",
            ) from None
        if version != VERSION:
            raise Refused(f"{self.path} has version {version}; this klog reads version {VERSION}")
        known = value.get("clusterId")
        if known is not None and cluster_id is not None and known != cluster_id:
            raise Refused(
                f"{self.path} is of the cluster {known}, and this is {cluster_id}",
                hint="a query on another cluster needs a checkpointLocation and a stateLocation of its own",
            )
        return StreamOffsets.from_json(value, str(self.path))

    def _create(self, cluster_id: str | None, initial: StreamOffsets) -> None:
        folder = self.path.parent
        self._files.make_folder(str(folder))
        temporary = folder / f".{uuid.uuid4()}"
        value = {"version": VERSION, "clusterId": cluster_id, **initial.to_json()}
        file = self._files.open(str(temporary), create=True)
        try:
            file.write_at(0, json.dumps(value, indent=1).encode())
            file.sync()
            os.link(temporary, self.path)  # unlike rename, never replaces
        except FileExistsError:
            pass
        except OSError as error:
            raise translated(error, "make", str(self.path)) from error
        finally:
            self._files.remove(str(temporary))
        self._files.sync_folder(str(folder))


def _local_folder(location: str) -> Path:
    match = _SCHEME.fullmatch(location)
    if match:
        scheme, rest = match.groups()
        if scheme.lower() != "file":
            raise UsageError(
                f'option "stateLocation": {location}: the state lies in a local folder of the driver, not in {scheme}:',
                hint="name a folder that every driver of this query sees, for example file:///mnt/shared/state",
            )
        location = unquote(re.sub(r"^//[^/]*", "", rest) if rest.startswith("//") else rest)
    if not location.strip():
        raise UsageError('option "stateLocation" names no folder')
    return Path(location).expanduser().absolute()
