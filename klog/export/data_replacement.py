"""Replace the data of an export on a local file system in one step: `replace_data`.

Merging batches removes several folders and adds one, and no file system does that in one step. But Linux exchanges two
folders in one step (renameat2 with RENAME_EXCHANGE). So a second ``data`` is made beside the first, with the merged
batches and with hard links to all other files, and the two folders are exchanged. A reader that lists ``data`` sees the
old or the new folder, and a crash leaves the old or the new folder.

A batch that is committed at the same time must not be lost: commits share a lock, which linking and exchanging hold
exclusively. The kernel releases it when the process ends.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from klog.errors import Refused, StorageError
from klog.export.stores.local import LocalStore
from klog.export.stores.store import Store
from klog.storage.filesystem import OsFileSystem, translated

_LOCK: Final = "_klog/.lock"
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_HERE: Final = -100
"""AT_FDCWD: paths are absolute anyway."""
_EXCHANGE: Final = 2
"""RENAME_EXCHANGE of renameat2(2)."""
_UNABLE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV, errno.EMLINK})


@contextmanager
def shared_data_lock(store: Store) -> Iterator[None]:
    """Hold off replacements of the data while inside; wait for one that is under way."""
    if not isinstance(store, LocalStore):
        yield
        return
    with _locked(store, fcntl.LOCK_SH):
        yield


@contextmanager
def _locked(store: LocalStore, how: int) -> Iterator[None]:
    path = store.location(_LOCK)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)
    except OSError as error:
        raise translated(error, "lock", path) from error


def replace_data(
    store: LocalStore,
    beside: str,
    without: Collection[str],
    expected: Mapping[str, bytes],
    on_step: Callable[[str], None] = lambda step: None,
) -> bool:
    """Remove the folders ``without`` from ``data`` and add those in ``beside``, in one step.

    ``expected`` maps paths to contents. If a file differs, another compaction was faster: return False, change nothing.
    Afterwards ``beside`` holds the folders that ``data`` no longer has. Raises Refused if the file system cannot
    exchange folders.
    """
    old, new = Path(store.location("data")), Path(store.location(beside))
    with _locked(store, fcntl.LOCK_EX):
        if any(store.read(path) != data for path, data in expected.items()):
            return False
        linked = _link(store, old, new, without)
        on_step("linked")
        files = OsFileSystem()
        files.sync_everything(str(store.path))
        _exchange(old, new)
        for parent in (old.parent, new.parent):
            files.sync_folder(str(parent))
    on_step("replaced")
    for name in linked:
        files.remove_folder(str(new / name))
    return True


def _link(store: LocalStore, old: Path, new: Path, without: Collection[str]) -> list[str]:
    """Link every folder of ``old`` into ``new``, by hard links; return the names of the folders."""
    linked = []
    try:
        for folder in sorted(old.iterdir()):
            if folder.name in without:
                continue
            linked.append(folder.name)
            for directory, _, names in os.walk(store.location(f"data/{folder.name}")):
                target = new / Path(directory).relative_to(old)
                target.mkdir()
                for name in names:
                    os.link(Path(directory, name), target / name)
    except OSError as error:
        raise _unable(error, "link files of", old) from error
    return linked


def _exchange(one: Path, other: Path) -> None:
    exchange = getattr(_LIBC, "renameat2", None)  # only Linux has it
    done = -1 if exchange is None else exchange(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)
    if done != 0:
        number = errno.ENOSYS if exchange is None else ctypes.get_errno()
        raise _unable(OSError(number, os.strerror(number)), f"exchange {one} with", other)


def _unable(error: OSError, act: str, path: Path) -> StorageError | Refused:
    if error.errno in _UNABLE:
        return Refused(
            f"this file system cannot {act} {path}: {error.strerror}",
            hint="compaction needs hard links and RENAME_EXCHANGE, which ext4, xfs, btrfs and tmpfs have",
        )
    return translated(error, act, str(path))
