"""The archive of the classes that Spark's JVM loads for an export: it takes half the processor time from each start.

Strategy: a JVM that finds no archive writes one as it ends (``-XX:ArchiveClassesAtExit``), some seconds after the
command has ended. It holds the archive's lock while it lives. The next start that gets the lock names the file.
An archive is a cache: it is never waited for, and the JVM ignores one that does not fit its class path or version.

    <cache>/spark-<key>.jsa     whole; mapped by every later start with the same Java and the same jars
    <cache>/spark-<key>.part    being written, or left by a JVM that was killed
    <cache>/spark-<key>.lock    held by the JVM that writes

Limits: the JVM writes the head of the file last, so a file with a head is whole unless the machine went down meanwhile.
Hence the checksums of the archive are verified at each start (``-XX:+VerifySharedSpaces``).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from klog.coordination.java import find_java
from klog.errors import JavaMissing

_MAGIC = bytes.fromhex("f00baba8")
"""Of a dynamic archive, as a number in the byte order of the machine (HotSpot's CDS_DYNAMIC_ARCHIVE_MAGIC)."""

_OTHER_CLASS_PATH = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Where one of these is set, the class path has folders, and the JVM archives nothing from a path with folders."""

_OTHER_FLAGS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Flags by which the user decides how JVMs start."""


class ClassArchive(NamedTuple):
    """``flags`` for the JVM, and the descriptor of a lock that it must inherit if it is the one that writes."""

    flags: str
    lock: int | None

    def close(self) -> None:
        """The JVM has started, or never will: whether the lock is still held is its affair."""
        if self.lock is not None:
            os.close(self.lock)


NONE = ClassArchive("", None)


def is_tuned_by_user() -> bool:
    """Whether the environment decides how JVMs start: then klog adds nothing of its own."""
    return any(os.environ.get(name) for name in _OTHER_FLAGS)


def open_archive(cache: Path | None, jars: Path, also: str) -> ClassArchive:
    """Flags that use the archive in ``cache``, or that write it, or none.

    ``jars`` is the folder of Spark's jars; ``also`` what else the archive depends on. Raises nothing.
    """
    if cache is None or is_tuned_by_user() or any(os.environ.get(name) for name in _OTHER_CLASS_PATH):
        return NONE
    try:
        cache = cache.resolve()
        cache.mkdir(parents=True, exist_ok=True)
        whole = cache / f"spark-{_key(jars, also)}.jsa"
        writing = None if whole.exists() else _locked(whole)
        return writing or ClassArchive(f"-XX:SharedArchiveFile={whole} -XX:+VerifySharedSpaces", None)
    except (OSError, JavaMissing):
        return NONE


def _key(jars: Path, also: str) -> str:
    java = find_java()
    key = hashlib.sha256(f"{java.version} {java.executable.resolve()} {also}".encode())
    with os.scandir(jars) as entries:
        for jar in sorted(entries, key=lambda entry: entry.name):
            status = jar.stat()
            key.update(f"{jar.path} {status.st_size} {status.st_mtime_ns}".encode())
    return key.hexdigest()[:16]


def _locked(whole: Path) -> ClassArchive | None:
    """To write the archive; NONE while another one writes. None where the last one has: its file has its name now."""
    part = whole.with_suffix(".part")
    lock = os.open(whole.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return NONE
    if not _is_whole(part):
        part.unlink(missing_ok=True)
        return ClassArchive(f"-XX:ArchiveClassesAtExit={part}", lock)
    for old in whole.parent.glob("spark-*.jsa"):  # of other versions of Spark and Java; each has 70 MB
        old.unlink(missing_ok=True)
    part.replace(whole)
    os.close(lock)
    return None


def _is_whole(part: Path) -> bool:
    """Whether the file is there with its head; it then outlives a power cut."""
    if not part.exists():
        return False
    with part.open("rb") as file:
        head = file.read(len(_MAGIC))
        os.fsync(file.fileno())
    return head in (_MAGIC, _MAGIC[::-1])
