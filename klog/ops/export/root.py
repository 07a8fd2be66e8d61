"""The folder of an export: what lies where in it, and the one step that makes a batch part of it.

    ROOT/data/batch=0000000042/part-*.parquet          only ever committed data; `_` files are ignored by readers
    ROOT/data/batch=0000000042/_klog_manifest.json     the offsets of these very files, chained to the batch before
    ROOT/_staging/<run>/                               what a run is writing; worth nothing to anyone else
    ROOT/_klog/export.json                             who this export is; made once, never changed
    ROOT/_klog/checkpoint.json                         the last batch up to which a run has checked the chain; a hint

Strategy: a run writes into its own staging folder, flushes every file and folder in it, and renames the whole to
``data/batch=N``. Renaming a folder onto one that is not empty fails in the kernel, so of two runs that made batch N one
wins and the other learns of it; a crash at any point leaves the batch whole or not there.

Limits: the local file system. Where a rename is not atomic (object stores) the commit has to be another one.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from klog.errors import NoSuchThing, Refused, StorageError, UsageError
from klog.ops.export.manifest import ExportIdentity, Manifest, sha256
from klog.storage.filesystem import FileSystem, OsFileSystem, translated

STAGING_TTL_S = 24 * 3600
"""Staging older than this belongs to no run that still lives."""

_BATCH = re.compile(r"batch=(\d{10,})")
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)")
_MANIFEST = "_klog_manifest.json"


class ExportRoot:
    """One export's folder. Thread-safe: it holds nothing but the path."""

    def __init__(self, root: str, file_system: FileSystem | None = None) -> None:
        """``root``: a path or ``file:`` URL; UsageError for other schemes."""
        self.path = _local_path(root)
        self._files = file_system or OsFileSystem()
        self._data = self.path / "data"
        self._staging = self.path / "_staging"
        self._own = self.path / "_klog"

    def __str__(self) -> str:
        return str(self.path)

    # --- Who it is ---

    def identity(self) -> ExportIdentity | None:
        """Who this export is; None where nothing was exported to here yet.

        Refused where the folder holds something else.
        """
        if self.path.exists() and not self.path.is_dir():
            raise Refused(f"{self.path} is a file", hint="name a folder that is not there yet")
        path = self._own / "export.json"
        data = self._files.read(str(path)) if self._own.is_dir() else None
        if data is not None:
            return ExportIdentity.from_json(data, str(path))
        foreign = self._foreign()
        if foreign is not None:
            raise Refused(
                f"{self.path} is not an export of klog: it has {foreign} and no _klog/export.json",
                hint="name an empty folder or one that is not there yet",
            )
        return None

    def _foreign(self) -> str | None:
        """Something in the folder that no first run, cut off at any point, can have left there."""
        if not self.path.is_dir():
            return None
        for one in sorted(self.path.iterdir()):
            if one != self._own or not one.is_dir():
                return one.name
            for below in one.iterdir():
                if not below.name.startswith("."):
                    return f"{one.name}/{below.name}"
        return None

    def existing_identity(self) -> ExportIdentity:
        """As `identity`; NoSuchThing where there is no export."""
        identity = self.identity()
        if identity is None:
            raise NoSuchThing(f"{self.path}: there is no export here", hint="klog export run TOPIC --to ROOT makes one")
        return identity

    def create(self, identity: ExportIdentity) -> ExportIdentity:
        """Make this root that export, durably. Who comes second gets the identity that the first one wrote."""
        self._files.make_folder(str(self._own))
        temporary = self._own / f".{uuid.uuid4()}"
        target = self._own / "export.json"
        self._write(temporary, identity.to_json())
        try:
            os.link(temporary, target)  # unlike rename, never replaces
        except FileExistsError:
            pass
        except OSError as error:
            raise translated(error, "make", str(target)) from error
        finally:
            self._files.remove(str(temporary))
        self._files.sync_folder(str(self._own))
        return self.existing_identity()

    # --- What was committed ---

    def batches(self) -> list[int]:
        """The committed batches, ascending. Refused where one between the first and the last is missing."""
        numbers = self.batch_numbers()
        for expected, found in enumerate(numbers):
            if found != expected:
                raise Refused(
                    f"{self._data}: batch {expected} is missing, but there is a batch {found}",
                    hint="klog export verify shows what else is wrong; bring the folder back from a backup",
                )
        return numbers

    def batch_numbers(self) -> list[int]:
        """The batches that there are, ascending, whatever is missing between them."""
        try:
            names = [one.name for one in self._data.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(int(match[1]) for match in map(_BATCH.fullmatch, names) if match)

    def batch_path(self, batch: int) -> Path:
        return self._data / f"batch={batch:010d}"

    def manifest(self, batch: int) -> tuple[Manifest, str]:
        """A batch's manifest and the SHA-256 of its bytes; Refused where it is missing or is none."""
        path = self.batch_path(batch) / _MANIFEST
        data = self._files.read(str(path))
        if data is None:
            raise Refused(f"{path} is missing", hint="bring the folder back from a backup")
        manifest = Manifest.from_json(data, str(path))
        if manifest.batch != batch:
            raise Refused(f"{path} is the manifest of batch {manifest.batch}")
        return manifest, sha256(data)

    def chain(self, known: tuple[Manifest, str] | None = None) -> Iterator[tuple[Manifest, str]]:
        """The manifests after ``known`` with their hashes, each held against the one before: hash and offsets.

        Refused at the first that does not follow.
        """
        for batch in self.batches():
            if known is not None and batch <= known[0].batch:
                continue
            manifest, digest = self.manifest(batch)
            self._check_follows(manifest, known)
            known = (manifest, digest)
            yield known

    def _check_follows(self, manifest: Manifest, previous: tuple[Manifest, str] | None) -> None:
        path = self.batch_path(manifest.batch)
        expected = None if previous is None else previous[1]
        if manifest.previous_sha256 != expected:
            raise Refused(
                f"{path} does not follow the batch before it: it names a manifest with hash "
                f"{manifest.previous_sha256}, there is {expected}",
                hint="one of the two was changed or comes from another export; klog export verify shows more",
            )
        for one, part in manifest.partitions.items() if previous else ():
            before = previous[0].partitions.get(one) if previous else None
            if before is not None and part.from_offset < before.to_offset:
                raise Refused(f"{path} begins {one} at {part.from_offset}, before the end of the batch before it")

    def last(self) -> tuple[Manifest, str] | None:
        """The last batch's manifest and hash, its chain checked from the last checkpoint on; None: no batch yet."""
        last = self._checkpointed()
        for found in self.chain(last):
            last = found
        return last

    def _checkpointed(self) -> tuple[Manifest, str] | None:
        """The manifest that the checkpoint names, if it still is what it was then."""
        data = self._files.read(str(self._own / "checkpoint.json"))
        try:
            value = json.loads(data or b"")
            known = self.manifest(int(value["batch"]))
        except (ValueError, KeyError, TypeError, Refused):
            return None
        return known if known[1] == value["sha256"] else None

    def checkpoint(self, batch: int, digest: str) -> None:
        """Remember that the chain holds up to this batch, so that the next run need not read what lies before."""
        data = json.dumps({"batch": batch, "sha256": digest}).encode()
        try:
            self._files.replace(str(self._own / "checkpoint.json"), data)
        except StorageError:
            pass  # a hint; another run may be replacing the same file

    # --- A run's own folder, and the commit ---

    def stage(self) -> tuple[str, Path]:
        """(run, its new empty folder)."""
        run = str(uuid.uuid4())
        path = self._staging / run
        self._files.make_folder(str(self._data))
        self._files.make_folder(str(path))
        return run, path

    def discard(self, run: str) -> None:
        """Remove this run's staging folder."""
        self._files.remove_folder(str(self._staging / run))

    def discard_stale(self, ttl_s: float = STAGING_TTL_S) -> list[str]:
        """Remove the staging of runs in which nothing was touched for ``ttl_s``; returns their names."""
        removed: list[str] = []
        if not self._staging.is_dir():
            return removed
        oldest = time.time() - ttl_s
        for one in sorted(self._staging.iterdir()):
            if _touched_at(one) < oldest:
                self._files.remove_folder(str(one))
                removed.append(one.name)
        return removed

    def flush(self, run: str, manifest: Manifest) -> str:
        """Put the manifest to the data, and all of it on the disk: files, then folders. Returns the manifest's hash."""
        folder = self._staging / run
        data = manifest.to_json()
        self._write(folder / _MANIFEST, data)
        for directory, _, names in os.walk(folder, topdown=False):
            for name in names:
                if name != _MANIFEST:
                    self._files.open(os.path.join(directory, name)).sync()
            self._files.sync_folder(directory)
        return sha256(data)

    def commit(self, run: str, batch: int) -> bool:
        """Make the flushed staging folder batch ``batch``. False where another run was first; the staging stays."""
        try:
            self._files.rename(str(self._staging / run), str(self.batch_path(batch)))
        except StorageError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EEXIST, errno.ENOTEMPTY):
                return False
            raise
        return True

    def _write(self, path: Path, data: bytes) -> None:
        """A new file whose content is on the disk; its name is not before its folder is flushed."""
        file = self._files.open(str(path), create=True)
        file.write_at(0, data)
        file.sync()


def _touched_at(path: Path) -> float:
    """When anything in the folder was last changed, in seconds since the epoch."""
    latest = 0.0
    for directory, _, names in os.walk(path):
        for name in (".", *names):
            try:
                latest = max(latest, Path(directory, name).stat().st_mtime)
            except FileNotFoundError:
                latest = time.time()  # it lives
    return latest


def _local_path(root: str) -> Path:
    match = _SCHEME.fullmatch(root)
    if match:
        scheme, rest = match.groups()
        if scheme.lower() != "file":
            raise UsageError(
                f"{root}: exports go to the local file system, not to {scheme}:",
                hint="name a folder, for example /data/export",
            )
        root = re.sub(r"^//[^/]*", "", rest) if rest.startswith("//") else rest
    if not root:
        raise UsageError("an export needs a folder to go to", hint="--to /data/export")
    return Path(root).expanduser().absolute()
