"""The archive of the classes that a JVM loads, Spark's or ZooKeeper's: it takes half the processor time from a start.

Strategy: a JVM that finds no archive writes one as it ends (``-XX:ArchiveClassesAtExit``). It holds the archive's lock
while it lives. The next start that gets the lock names the file. An archive is a cache: it is never waited for, and the
JVM ignores one that does not fit its class path or version.

    <cache>/<program>-<key>-<bytes>.jsa    whole; mapped by every later start with the same Java and the same jars
    <cache>/<program>-<key>.part           being written, or left by a JVM that was killed
    <cache>/<program>-<key>.lock           held by the JVM that writes; its content is the number of tries

Limits: the JVM writes the head of the file last, so a file with a head is whole unless the machine went down meanwhile.
Hence the checksums of the archive are verified at each start (``-XX:+VerifySharedSpaces``).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from klog.coordination.java import Java

TRIES = 3
"""JVMs that may fail to write one (no room, a container that ends with the command) before no further one tries."""

KEPT = 4
"""Archives of a program, of different versions or flags: Spark's have 70 MB each."""

_MAGIC = bytes.fromhex("f00baba8")
"""Of a dynamic archive, as a number in the byte order of the machine (HotSpot's CDS_DYNAMIC_ARCHIVE_MAGIC)."""


class ClassArchive(NamedTuple):
    """``flags`` for the JVM, and the descriptor of a lock that it must inherit if it is the one that writes."""

    flags: tuple[str, ...]
    lock: int | None

    @property
    def locks(self) -> tuple[int, ...]:
        """The descriptors for the JVM."""
        return () if self.lock is None else (self.lock,)

    def close(self) -> None:
        """The JVM has started, or never will: whether the lock is still held is its affair."""
        for lock in self.locks:
            os.close(lock)


NONE = ClassArchive((), None)


def open_archive(cache: Path | None, program: str, java: Java, jars: Iterable[Path], also: str) -> ClassArchive:
    """Flags that use the archive in ``cache``, or that write it, or none. ``also``: what else the archive depends on.
    Raises nothing."""
    if cache is None:
        return NONE
    try:
        stem = f"{program}-{_key(java, jars, also)}"
        cache = cache.resolve()  # the JVM may run in another folder
        cache.mkdir(parents=True, exist_ok=True)
        return _found(cache, stem) or _locked(cache, stem)
    except OSError:
        return NONE


def _key(java: Java, jars: Iterable[Path], also: str) -> str:
    key = hashlib.sha256(f"{java.version} {java.executable.resolve()} {also}".encode())
    for jar in sorted(jars):
        status = jar.stat()
        key.update(f"{jar} {status.st_size} {status.st_mtime_ns}".encode())
    return key.hexdigest()[:16]


def _found(cache: Path, stem: str) -> ClassArchive | None:
    for one in cache.glob(f"{stem}-*.jsa"):
        if one.stem == f"{stem}-{one.stat().st_size}":  # the JVM would map a truncated one, and crash
            return ClassArchive((f"-XX:SharedArchiveFile={one}", "-XX:+VerifySharedSpaces"), None)
        one.unlink()
    return None


def _locked(cache: Path, stem: str) -> ClassArchive:
    """Take what the last writer has left, or write; NONE while another one writes, or where none could."""
    lock = os.open(cache / f"{stem}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return NONE
        part = cache / f"{stem}.part"
        if part.exists() and _is_whole(part):
            _name(part, stem)
        if found := _found(cache, stem):
            return found
        tries = int(os.pread(lock, 20, 0).decode("ascii", "replace").strip() or 0)
        if tries >= TRIES:
            return NONE
        part.unlink(missing_ok=True)
        os.pwrite(lock, b"%d\n" % (tries + 1), 0)
        writing, lock = lock, -1
        return ClassArchive((f"-XX:ArchiveClassesAtExit={part}",), writing)
    except ValueError:  # of a lock file that something else has written
        return NONE
    finally:
        if lock >= 0:
            os.close(lock)


def _is_whole(part: Path) -> bool:
    with part.open("rb") as file:
        head = file.read(len(_MAGIC))
    return head in (_MAGIC, _MAGIC[::-1])


def _name(part: Path, stem: str) -> None:
    """Give a whole archive its name, and remove the program's oldest ones."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    program = stem.partition("-")[0]
    for old in sorted(part.parent.glob(f"{program}-*.jsa"), key=lambda one: one.stat().st_mtime)[: 1 - KEPT]:
        old.unlink(missing_ok=True)
    part.replace(part.with_name(f"{stem}-{part.stat().st_size}.jsa"))
