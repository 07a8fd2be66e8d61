"""The root folder of an export: its layout, and the single step that commits a batch. docs/export-format.md shows it.

Strategy: a run writes into its own folder in ``_staging`` and flushes every file and folder in it. It puts its manifest
into ``batches``, where readers ignore it until the data names the run. Then it renames the staging folder to
``data/batch=N``: that is the commit. A rename onto an existing folder fails. So when two runs make batch N, one commits
and the other gets an error. A crash at any point leaves either the whole batch or nothing of it.

A store without such a rename (an object store) commits by creating a file that does not exist yet: the batch is written
to its final place, ``data/batch=N-<run>``, and counts if, and only if, its manifest in ``_klog/commits`` names the run.

The first run of a root chooses between the two, and ``export.json`` records the choice for readers. Where batches are
renamed ``data`` has no files but data: some readers (Polars) read every file below a folder that is not empty.
`klog.export.compact` merges batches into fewer files.

An export that is a table of Iceberg or Delta Lake commits in the table: `klog.export.tables.commits`.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeVar

from klog.errors import NoSuchThing, Refused, StorageError
from klog.export.batch_writer import UNDECODABLE, is_undecodable
from klog.export.data_replacement import shared_data_lock
from klog.export.manifest import (
    COMMIT_BY_MANIFEST,
    COMMIT_BY_RENAME,
    COMMITS_BY_TABLE,
    ExportIdentity,
    Manifest,
    sha256,
)
from klog.export.stores import open_store
from klog.export.stores.store import Store, scheme_of
from klog.export.tables.commits import TableCommits, commit_path, manifest_path

STAGING_TTL_S = 24 * 3600
"""A staging folder that has not changed for this long belongs to a dead run."""

_BATCH = re.compile(r"batch=(\d{10,})")
_WRITTEN = re.compile(r"(?:batch=)?(\d{10,})-([0-9a-f-]{36})")
_ASIDE = re.compile(r"(\d{10,})-[0-9a-f-]{36}")
_NUMBERED = re.compile(r"(\d{10,})\.json")
_IDENTITY = "_klog/export.json"
_CHECKPOINT = "_klog/checkpoint.json"
MANIFEST = "_klog_manifest.json"
MARK = "_klog-"
"""Prefix of the empty file that names the run."""
BATCHES = "batches"
COMMITS, MERGES = "_klog/commits", "_klog/merges"

T = TypeVar("T")


class Staged(NamedTuple):
    """What a run writes and then commits."""

    run: str
    batch: int
    folder: str
    """Where the run writes; relative to the root."""


class ExportRoot:
    """The root of one export. Thread-safe: it holds the store, and caches of facts that never change."""

    def __init__(self, root: str | Store, *, among_others: bool = False) -> None:
        """``root``: a path, a URL, or a store; errors of `open_store`. ``among_others``: before the first run there may
        be a table there that others made."""
        self.store: Store = open_store(root) if isinstance(root, str) else root
        self._among_others = among_others
        self._commit: str | None = None
        self._table: TableCommits | None = None
        self._unsure: set[str] = set()
        """Runs whose commit got an error although it may have succeeded."""
        self._merges: dict[int, Manifest] = {}
        self._spoken: list[Manifest] | None = None
        """The merges as of the last `batch_numbers`. They fix what a batch number means while that list is in use."""

    def __str__(self) -> str:
        return self.store.url

    # --- Who it is ---

    def identity(self) -> ExportIdentity | None:
        """The identity of the export; None if this root has none yet.

        Refused if the folder holds something else.
        """
        data = self.store.read(_IDENTITY)
        if data is not None:
            identity = ExportIdentity.from_json(data, self.store.location(_IDENTITY))
            if identity.commit not in (COMMIT_BY_RENAME, COMMIT_BY_MANIFEST, *COMMITS_BY_TABLE):
                raise Refused(f"{self} commits by {identity.commit!r}, which this klog does not know; use a newer one")
            self._commit = identity.commit
            if self._commit in COMMITS_BY_TABLE and self._table is None:
                self._table = TableCommits(self.store, identity)
            return identity
        foreign = None if self._among_others else self._foreign()
        if foreign is not None:
            if self.store.read(_IDENTITY) is not None:  # another run has begun it between the two looks
                return self.identity()
            raise Refused(
                f"{self} is not an export of klog: it has {foreign} and no {_IDENTITY}",
                hint="name an empty folder or one that is not there yet"
                + (", or add to the table by --append" if foreign in ("_delta_log", "data", "metadata") else ""),
            )
        return None

    def _foreign(self) -> str | None:
        """The path of something that an interrupted first run cannot have left in the root; None without one."""
        for name in self.store.names(""):
            if name != "_klog":
                return name
            try:
                below = self.store.names(name)
            except Refused:
                return name
            for one in below:
                if not one.startswith("."):
                    return f"{name}/{one}"
        return None

    def existing_identity(self) -> ExportIdentity:
        """As `identity`; NoSuchThing if there is no export."""
        try:
            identity = self.identity()
        except Refused as error:
            # A reader of an export has no use for the hint on starting one.
            raise Refused(error.message, hint="name the ROOT that `klog export run TOPIC --to ROOT` wrote") from None
        if identity is None:
            raise NoSuchThing(f"{self}: there is no export here", hint="klog export run TOPIC --to ROOT makes one")
        return identity

    def create(self, identity: ExportIdentity) -> ExportIdentity:
        """Write the identity durably, with the kind of commit that the store supports. Returns the one that counts:
        if another run was first, that run's."""
        commit = COMMIT_BY_RENAME if self.store.commits_by_rename else COMMIT_BY_MANIFEST
        if identity.table is not None:
            commit = identity.commit
        self.store.create(_IDENTITY, replace(identity, commit=commit).to_json())
        return self.existing_identity()

    @property
    def by_rename(self) -> bool:
        """Whether batches are committed by rename. Before the first run, as the store supports it."""
        if self._commit is None:
            self.identity()
        return self.store.commits_by_rename if self._commit is None else self._commit == COMMIT_BY_RENAME

    @property
    def table(self) -> TableCommits | None:
        """How the batches of a table are committed; None for files alone."""
        if self._commit is None:
            self.identity()
        return self._table

    # --- What was committed ---

    def batches(self) -> list[int]:
        """The numbers of the committed batches, ascending. Refused if one between the first and the last is missing."""
        numbers = self.batch_numbers()
        expected = 0
        for found in numbers:
            if found != expected and self.manifest(found)[0].first_batch != expected:
                raise Refused(
                    f"{self}: batch {expected} is missing, but there is a batch {found}",
                    hint="klog export verify shows what else is wrong; bring the folder back from a backup",
                )
            expected = found + 1
        return numbers

    def batch_numbers(self) -> list[int]:
        """The numbers of the committed batches, ascending, possibly with holes. Of merged batches, the last number."""
        if self.table is not None:
            self.table.settle()
        folder, pattern = ("data", _BATCH) if self.by_rename else (COMMITS, _NUMBERED)
        matches = map(pattern.fullmatch, self.store.names(folder))
        numbers = sorted(int(match[1]) for match in matches if match)
        if self.by_rename:
            return numbers
        self._spoken = self.merges()
        spans = [(one.first_batch, one.batch) for one in self._spoken]
        return [n for n in numbers if not any(first <= n < last for first, last in spans)]

    def unknown_files(self) -> list[str]:
        """Files beside the batches that a reader of the folder would take for data, relative to the root.

        Always empty where manifests commit, since readers of such a root use the manifests."""
        if not self.by_rename:
            return []
        return [f"data/{one}" for one in self.store.names("data") if one[0] not in "_." and not _BATCH.fullmatch(one)]

    def merges(self) -> list[Manifest]:
        """The manifests of merged batches, in the order of the merges, where manifests commit.

        Without those whose batches were merged again."""
        found: list[Manifest] = []
        for one in self.all_merges():
            found = [other for other in found if not one.first_batch <= other.batch <= one.batch] + [one]
        return found

    def all_merges(self) -> list[Manifest]:
        """As `merges`, with those whose batches were merged again."""
        numbers = sorted(int(match[1]) for match in map(_NUMBERED.fullmatch, self.store.names(MERGES)) if match)
        for number in numbers:
            if number not in self._merges:
                path = merge_path(number)
                self._merges[number] = Manifest.from_json(self.existing(path), self.store.location(path))
        return [self._merges[number] for number in numbers]

    def batch_folder(self, manifest: Manifest) -> str:
        """The folder of a committed batch's files, relative to the root."""
        if self.by_rename:
            return f"data/batch={manifest.batch:010d}"
        return self.written_folder(manifest.batch, manifest.run)

    def manifest(self, batch: int) -> tuple[Manifest, str]:
        """The manifest of a batch, and the SHA-256 by which the next manifest refers to it.

        That is the hash of its bytes. For merged batches it is the hash of the manifest with which the last of them
        was committed. Refused if the manifest is missing or invalid.
        """
        if self._spoken is None:
            self._spoken = [] if self.by_rename else self.merges()
        for one in self._spoken:
            if one.batch == batch and one.merged is not None:
                return one, one.merged.last_sha256
        manifest, digest = self.committed(batch)
        return manifest, digest if manifest.merged is None else manifest.merged.last_sha256

    def committed(self, batch: int) -> tuple[Manifest, str]:
        """As `manifest`, but the file itself and the hash of its bytes, whatever ``_klog/merges`` says."""
        path = self.manifest_path(batch)
        location = self.store.location(path)
        data = self.existing(path)
        manifest = Manifest.from_json(data, location)
        if manifest.batch != batch:
            raise Refused(f"{location} is the manifest of batch {manifest.batch}")
        return manifest, sha256(data)

    def existing(self, path: str) -> bytes:
        """A file of what was committed. Refused if it is missing."""
        data = self.store.read(path)
        if data is None:
            raise Refused(f"{self.store.location(path)} is missing", hint="bring the file back from a backup")
        return data

    def manifest_path(self, batch: int) -> str:
        """The path of a committed batch's manifest, relative to the root. Refused if its data does not name one run."""
        if not self.by_rename:
            return commit_path(batch)
        folder = f"data/batch={batch:010d}"
        runs = [name.removeprefix(MARK) for name in self.store.names(folder) if name.startswith(MARK)]
        if len(runs) != 1:
            raise Refused(
                f"{self.store.location(folder)} has {len(runs) or 'no'} files {MARK}<run>, which say who has made it",
                hint="bring the folder back from a backup",
            )
        return f"{aside(batch, runs[0])}/_manifest.json"

    def file_path(self, manifest: Manifest, path: str) -> str:
        """The path, relative to the root, of a file that a manifest lists."""
        if self.by_rename and is_undecodable(path):
            return f"{aside(manifest.batch, manifest.run)}/{path}"
        return f"{self.batch_folder(manifest)}/{path}"

    @property
    def undecodable_folders(self) -> str:
        """A pattern of the folders of undecodable messages, relative to the root."""
        return f"{BATCHES if self.by_rename else 'data'}/*/{UNDECODABLE}"

    def folders(self, manifest: Manifest) -> list[str]:
        """The folders to which the paths in a manifest are relative."""
        folder = self.batch_folder(manifest)
        return [folder, aside(manifest.batch, manifest.run)] if self.by_rename else [folder]

    def written_folder(self, batch: int, run: str) -> str:
        """Where a run writes a batch that a manifest or a table commits.

        Some readers of a Delta table take NAME=VALUE in a path for one of its columns."""
        return f"data/{'' if self.table else 'batch='}{batch:010d}-{run}"

    def where(self, batch: int) -> str:
        """The location of a batch for messages, whether it exists or not."""
        return self.store.location(f"data/batch={batch:010d}" if self.by_rename else commit_path(batch))

    def chain(self, known: tuple[Manifest, str] | None = None) -> Iterator[tuple[Manifest, str]]:
        """The manifests after ``known`` with their hashes. Checks hash and offsets of each against the previous one.

        Refused at the first manifest that does not follow.
        """
        for batch in self.batches():
            if known is not None and batch <= known[0].batch:
                continue
            manifest, digest = self.manifest(batch)
            self._check_follows(manifest, known)
            known = (manifest, digest)
            yield known

    def _check_follows(self, manifest: Manifest, previous: tuple[Manifest, str] | None) -> None:
        path = self.where(manifest.batch)
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
        """The manifest of the last batch and its hash; None without a batch. Checks the chain after the checkpoint."""

        def read() -> tuple[Manifest, str] | None:
            last, hint = None, self.checkpointed()
            if hint is not None:
                with suppress(Refused):
                    found = self.manifest(hint[0])
                    last = found if found[1] == hint[1] else None  # it has changed since
            for found in self.chain(last):
                last = found
            return last

        return self.settled(read)

    def settled(self, read: Callable[[], T]) -> T:
        """The result of ``read``, which reads manifests; called again if it was refused while batches were merged."""
        while True:
            before = self.batch_numbers()
            try:
                return read()
            except Refused:
                if set(before) <= set(self.batch_numbers()):
                    raise

    def checkpointed(self) -> tuple[int, str] | None:
        """The batch that the checkpoint names, which was committed, and the hash of its manifest; None without one."""
        try:
            value = json.loads(self.store.read(_CHECKPOINT) or b"")
            return int(value["batch"]), str(value["sha256"])
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            return None

    def checkpoint(self, batch: int, digest: str) -> None:
        """Record that the chain is valid up to this batch, so that the next run need not read what precedes it."""
        data = json.dumps({"batch": batch, "sha256": digest}).encode()
        try:
            self.store.replace(_CHECKPOINT, data)
        except StorageError:
            pass  # a hint; another run may be replacing the same file

    # --- A run's own folder, and the commit ---

    def commit_batch(
        self,
        number: int,
        fill: Callable[[Staged], Manifest | None],
        on_step: Callable[[str], None] = lambda step: None,
    ) -> bool | None:
        """Commit what ``fill`` writes into the batch's folder. Until then a failure leaves nothing of it.

        ``fill`` returns the manifest, or None where there is nothing to commit. The result is None then, and False
        where another run has committed a batch of this number first.
        """
        staged = self.stage(number)
        committed = None
        try:
            on_step("staged")
            manifest = fill(staged)
            if manifest is not None:
                digest = self.flush(staged, manifest)
                on_step("flushed")
                committed = self.commit(staged)
        except BaseException:
            self.discard(staged)
            raise
        if not committed:
            self.discard(staged)
            return committed
        on_step("committed")
        self.checkpoint(number, digest)
        on_step("checkpointed")
        return True

    def stage(self, batch: int) -> Staged:
        """Create an empty folder for a run that will write this batch. Refused where this store cannot commit it."""
        if self.by_rename and not self.store.commits_by_rename:
            raise Refused(
                f"{self} commits by renaming folders, which {scheme_of(self.store.url)}: cannot do",
                hint="go on where it came from, or export to another place",
            )
        run = str(uuid.uuid4())
        folder = f"_staging/{run}" if self.by_rename else self.written_folder(batch, run)
        self.store.make_folder("data")
        self.store.make_folder(folder)
        return Staged(run, batch, folder)

    def discard(self, staged: Staged) -> None:
        """Remove what a run wrote and did not commit. If the commit may have succeeded, keep it: `discard_stale`
        removes it later if the commit failed."""
        if staged.run in self._unsure:
            return
        if self._table is not None and self._table.has(staged.batch, staged.run):
            return  # an error has hidden that it was committed
        self.store.remove(staged.folder)
        self.store.remove(manifest_path(staged.run))
        if self.by_rename:
            self.remove_aside(staged.batch, staged.run)

    def remove_aside(self, batch: int, run: str) -> None:
        """Remove a run's folder in ``batches``, unless its data is committed (even if the store gave an error)."""
        if self.store.read(f"data/batch={batch:010d}/{MARK}{run}") is None:
            self.store.remove(aside(batch, run))

    def orphans(self) -> list[str]:
        """Folders in ``batches`` that no batch uses, relative to the root: of runs that did not commit, and of batches
        that were merged."""
        if not self.by_rename:
            return []
        entries = self.store.names(BATCHES)  # before the batches: one committed in between is in the second list
        named: set[str] = set()
        spoken: set[int] = set()
        numbers = self.batch_numbers()
        for batch in numbers:
            manifest, _ = self.committed(batch)
            named.add(aside(batch, manifest.run))
            spoken |= set(range(manifest.first_batch, batch + 1))
        last = max(numbers, default=-1)
        found = []
        for name in entries:
            match = _ASIDE.fullmatch(name)
            # Keep the manifest of a missing batch: it may be all that is left of it.
            if match and f"{BATCHES}/{name}" not in named and (int(match[1]) in spoken or int(match[1]) > last):
                found.append(f"{BATCHES}/{name}")
        return found

    def uncommitted(self) -> list[str]:
        """The folders of runs, live or dead, that have not committed; relative to the root."""
        if self.by_rename:
            return [f"_staging/{name}" for name in self.store.names("_staging")]
        # The folders first: one that is committed between the two listings is in the second.
        found = [match for match in map(_WRITTEN.fullmatch, self.store.names("data")) if match]
        if self.table is not None:
            self.table.settle()  # a batch that only the table knows of
        there = {int(match[1]) for match in map(_NUMBERED.fullmatch, self.store.names(COMMITS)) if match}
        merged = {self.written_folder(one.batch, one.run) for one in self.all_merges()}
        folders = []
        for match in found:
            folder, batch = f"data/{match[0]}", int(match[1])
            if folder in merged or (
                batch in there and self.written_folder(batch, self.committed(batch)[0].run) == folder
            ):
                continue
            folders.append(folder)
        return folders

    def discard_stale(self, ttl_s: float = STAGING_TTL_S) -> list[str]:
        """Remove uncommitted folders in which nothing has changed for ``ttl_s``; returns their paths."""
        oldest = time.time() - ttl_s
        removed = [folder for folder in self.uncommitted() if self.store.touched_s(folder) < oldest]
        for folder in removed:
            self.store.remove(folder)
            if match := _WRITTEN.fullmatch(folder.removeprefix("data/")):
                self.store.remove(manifest_path(match[2]))
        return removed

    def flush(self, staged: Staged, manifest: Manifest) -> str:
        """Write the manifest, and sync data and manifest to disk. Returns the manifest's hash."""
        data = replace(manifest, commit=self._commit or COMMIT_BY_MANIFEST).to_json()
        if self._table is not None:
            self.store.create(manifest_path(staged.run), data)
        elif self.by_rename:
            self.put_aside(staged.batch, staged.run, staged.folder, {"_manifest.json": data})
        else:
            with self.store.open_output(f"{staged.folder}/{MANIFEST}") as file:
                file.write(data)
        self.store.sync(staged.folder)
        return sha256(data)

    def put_aside(self, batch: int, run: str, folder: str, files: dict[str, bytes]) -> None:
        """Write ``files``, durably, into the batch's folder in ``batches``, and move undecodable messages there.

        ``folder``, which becomes the data, gets the empty file that names the run.
        """
        beside = aside(batch, run)
        self.store.make_folder(beside)
        if UNDECODABLE in self.store.names(folder):
            self.store.rename(f"{folder}/{UNDECODABLE}", f"{beside}/{UNDECODABLE}")
        for name, data in files.items():
            with self.store.open_output(f"{beside}/{name}") as file:
                file.write(data)
        self.store.open_output(f"{folder}/{MARK}{run}").close()
        self.store.sync(beside)

    def commit(self, staged: Staged) -> bool:
        """Commit the flushed batch. False if another run committed this batch first; the staged files then stay."""
        if self.by_rename:
            with shared_data_lock(self.store):
                return self.store.rename(staged.folder, f"data/batch={staged.batch:010d}")
        # Read it again, so that a folder which was removed as stale meanwhile is not committed.
        path = f"{staged.folder}/{MANIFEST}" if self._table is None else manifest_path(staged.run)
        data = self.store.read(path)
        if data is None:
            raise StorageError(f"{self.store.location(staged.folder)} was removed before it was committed")
        if self._table is not None:
            return self._table.commit(staged.batch, staged.run, staged.folder, data)
        self._unsure.add(staged.run)
        committed = self.store.create(commit_path(staged.batch), data)
        self._unsure.discard(staged.run)
        return committed


def aside(batch: int, run: str) -> str:
    """The folder, in a plain root, of a batch's manifest and of everything else that is not data."""
    return f"{BATCHES}/{batch:010d}-{run}"


def merge_path(number: int) -> str:
    return f"{MERGES}/{number:010d}.json"
