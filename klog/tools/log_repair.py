"""``klog log repair``: make a log whole again without a broker, and lose nothing but what is not a batch.

First a plan, which changes nothing; then its execution, which is recovery itself, run over whole segments and not only
from the recovery point on. Damage becomes a recorded hole: its bytes go to ``<first address>.damaged`` and a segment
begins behind it. Bytes that recovery cuts (a torn end, a file that reaches into the next) are kept too, in
``<first address>.cut``, which only an operator reads.
Order, so that a crash loses no byte: all that is not a batch to ``.cut`` files; recovery; what recovery recorded as a
hole moves from its ``.cut`` file into the record, to which recovery itself writes the first MiB only.

Rules
    A log dir that a broker holds locked is refused.
    What is executed is what was planned: if the files have changed since, nothing is done.
    Every valid batch is there afterwards, at its address: checked before success is reported.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from klog.clock import SYSTEM_CLOCK
from klog.errors import CorruptLog, Refused
from klog.storage import meta_properties
from klog.storage.damage_record import DAMAGED_SUFFIX
from klog.storage.file_pool import FilePool
from klog.storage.filesystem import FileSystem, OsFileSystem, copy_range
from klog.storage.log_dir import LOCK
from klog.storage.partition_folder import parse_folder_name
from klog.storage.recovery import Recovery
from klog.storage.segment import base_address_of
from klog.tools.log_files import LogRow, row_of
from klog.tools.log_survey import FAULTS, Batch, Meter, State, Stretch, find_folders, locked, survey

CUT_SUFFIX: Final = ".cut"
RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of damage that is put into its record: that is done in memory. More stays in the ``.cut`` file beside it."""


class Kept(NamedTuple):
    """The valid batches of a folder: how many, their messages, and a sum over all addresses and CRCs."""

    batches: int
    messages: int
    checksum: int


@dataclass(frozen=True, slots=True)
class FolderPlan:
    """What would be done to one partition's folder: its faults, and what is kept whatever happens."""

    folder: str
    faults: tuple[Stretch, ...]
    kept: Kept


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """Folders with something to repair; empty where all is well."""

    folders: tuple[FolderPlan, ...]

    @property
    def rows(self) -> list[LogRow]:
        """What would be done, one row per stretch: ``state`` says what becomes of it, ``file`` where its bytes go."""
        return [_act(fault) for plan in self.folders for fault in plan.faults]

    @property
    def kept_messages(self) -> int:
        return sum(plan.kept.messages for plan in self.folders)


def plan_repair(path: str | os.PathLike[str], meter: Meter | None = None) -> RepairPlan:
    """Read all of PATH (a partition's folder, a log dir; a file stands for its folder) and say what repair would do.

    Raises NoSuchThing, Refused where PATH does not belong to a log dir, LogDirLocked while a broker has it.
    """
    root = Path(path)
    if root.is_file():
        find_folders(root)  # raises if the file does not belong to a log
        root = root.parent
    plans = []
    meter, folders = meter or Meter(), find_folders(root.absolute())
    meter.expect(folders)
    for folder, segments in folders:
        if parse_folder_name(Path(folder).name) is None:
            raise Refused(
                f"{folder} is not named <topic>-<partition>: repair works on a partition's folder in a log dir",
                hint="dump and verify read segment files anywhere",
            )
        with _locked(folder):
            faults, kept = _look(meter.over(survey(folder, segments)))
        if faults:
            plans.append(FolderPlan(folder, tuple(faults), kept))
    return RepairPlan(tuple(plans))


def apply_repair(plan: RepairPlan, file_system: FileSystem | None = None) -> list[LogRow]:
    """Do what the plan says; the rows of what was done.

    Raises Refused where the files are no longer those of the plan, LogDirLocked, StorageError. A crash at any step
    leaves a log that can be repaired again.
    """
    file_system = file_system or OsFileSystem()
    done: list[LogRow] = []
    for folder_plan in plan.folders:
        folder = folder_plan.folder
        with _locked(folder):
            if _look_at(folder) != (list(folder_plan.faults), folder_plan.kept):
                raise Refused(
                    f"{folder} has changed since the plan was made; {len(done)} stretches were repaired before",
                    hint="run the repair again for a new plan",
                )
            kept = [(fault, _keep_bytes(file_system, fault)) for fault in folder_plan.faults if fault.bytes]
            Recovery(file_system, folder, FilePool(), SYSTEM_CLOCK.now_ms()).run(None, 0, None)
            for fault, cut in kept:
                if fault.state is State.DAMAGED:  # bytes of an overlap may have the same address
                    _move_to_record(file_system, cut)
            faults, found = _look_at(folder)
            if faults or found != folder_plan.kept:
                raise CorruptLog(
                    f"{folder} holds {found.batches} batches and {len(faults)} faults after its repair;"
                    f" expected {folder_plan.kept.batches} and none"
                )
        done += [_act(fault) for fault in folder_plan.faults]
    return done


def _look_at(folder: str) -> tuple[list[Stretch], Kept]:
    ((_, segments),) = find_folders(folder)
    return _look(survey(folder, segments))


def _look(events: Iterator[Batch | Stretch]) -> tuple[list[Stretch], Kept]:
    faults: list[Stretch] = []
    batches = messages = checksum = 0
    for event in events:
        if isinstance(event, Batch):
            batches += 1
            messages += event.header.count
            checksum = zlib.crc32(b"%d %d" % (event.address, event.header.crc), checksum)
        elif event.state in FAULTS:
            faults.append(event)
    return faults, Kept(batches, messages, checksum)


# --- What becomes of a stretch ---


def _beside(fault: Stretch, suffix: str) -> str:
    return f"{Path(fault.file).parent}/{fault.address:020d}{suffix}"


def _act(fault: Stretch) -> LogRow:
    is_cut = fault.state in (State.TORN, State.OVERLAP)
    return replace(
        row_of(fault),
        state="cut" if is_cut else "hole",
        file=_beside(fault, CUT_SUFFIX if is_cut else DAMAGED_SUFFIX),
    )


class Cut(NamedTuple):
    """A file with the bytes of a stretch, and the record that a hole in its place would have."""

    path: str
    record: str
    size: int


def _keep_bytes(file_system: FileSystem, fault: Stretch) -> Cut:
    """The stretch's bytes as they are, durable in a file of their own; one that is there already is left alone."""
    target, number = _beside(fault, CUT_SUFFIX), 1
    while file_system.exists(target):
        target, number = _beside(fault, f".{number}{CUT_SUFFIX}"), number + 1
    base_address = base_address_of(Path(fault.file).name)
    assert base_address is not None, fault.file
    source = file_system.open(fault.file)
    copy_range(file_system, source, fault.address - base_address, fault.bytes, target, keep_holes=True)
    return Cut(target, _beside(fault, DAMAGED_SUFFIX), fault.bytes)


def _move_to_record(file_system: FileSystem, cut: Cut) -> None:
    """Where recovery recorded a hole from that address on, the record takes the bytes, and all of them."""
    record = file_system.read(cut.record)
    if record is None or cut.size > RECORD_BYTES_MAX:
        return
    head, newline, kept = record.partition(b"\n")
    if len(kept) != cut.size:
        data = file_system.read(cut.path)
        assert data is not None, cut.path
        file_system.replace(cut.record, head + newline + data)
    file_system.remove(cut.path)


# --- Whose the folder is ---


def _locked(folder: str) -> AbstractContextManager[None]:
    """The lock of the log dir that the folder lies in, where that is one: then a broker may have it."""
    log_dir = Path(folder).parent
    if any((log_dir / name).exists() for name in (LOCK, meta_properties.NAME)):
        return locked(log_dir, "stop the broker first; klog log verify reads the files of a running one")
    return nullcontext()
