"""The folder of one stream: what it is, how far it is, and whether it runs.

    STATE/NAME/stream.json        what it reads, computes and writes; written at each start
    STATE/NAME/progress.json      what its last batch was, what went wrong last; replaced a few times a minute
    STATE/NAME/stop               asks the process that runs it to stop; removed by the next start
    STATE/NAME/lock               held by that process (flock), so that it is free as soon as the process is gone
    STATE/NAME/checkpoint/        Spark's checkpoint, with klog's own beside it (`klog.streams.batch_ends`)

The checkpoint is the stream: all else can be lost, and comes again with the next start.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from klog.errors import NoSuchThing, Refused, UsageError

VERSION = 1
LOOKED_AT_S = 0.2
"""Longer than a look whether a stream runs takes."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Description:
    """What a stream is. ``sources`` as in ``--from``, ``target`` as in ``--to``."""

    name: str
    sources: tuple[str, ...]
    target: str
    program: str
    """The path of its file, or its query."""
    servers: str
    started_at: str = ""
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)


@dataclass(frozen=True)
class LastBatch:
    """How a stream does, by its last batch; None before the first."""

    batch: int | None = None
    batch_at: str | None = None
    batch_ms: int | None = None
    """How long it took."""
    rows: int | None = None
    rows_per_s: float | None = None
    watermark: str | None = None
    late: int = 0
    """Rows that came too late for their window, since the stream was started."""
    state_rows: int | None = None
    state_bytes: int | None = None
    restarts: int = 0
    error: str | None = None
    """Why it is not running, or was started again last."""


@dataclass(frozen=True)
class Progress(LastBatch):
    """How far a stream is, as its folder keeps it."""

    at: str = ""
    """When this was written; RFC 3339."""
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    """Behind the last message that was read, by topic and partition."""
    is_over: bool = False
    """Whether it has ended by itself: stopped, failed, or with --once at its end."""


class StreamFolder:
    """One stream's. ``state``: the folder of all."""

    def __init__(self, state: Path, name: str) -> None:
        if _NAME.fullmatch(name) is None:
            raise UsageError(f"the name {name!r} is not one of a folder", hint="letters, digits, dots and hyphens")
        self.name = name
        self.path = state / name

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def has_begun(self) -> bool:
        """Whether a batch of it was ever begun."""
        return any(self.checkpoint.glob("offsets/[0-9]*"))

    # --- What it is ---

    def describe(self, wanted: Description) -> None:
        """Write what it is. Refused where the folder has a stream that has begun, with another source or target."""
        known = self.description() if self.has_begun else None
        kept = () if known is None else (("reads", "sources"), ("writes to", "target"))
        for what, name in kept:
            found, asked = getattr(known, name), getattr(wanted, name)
            if found != asked:
                shown = [" ".join(one) if isinstance(one, tuple) else one for one in (found, asked)]
                raise Refused(
                    f"the stream {self.name} {what} {shown[0]}, not {shown[1]}",
                    hint="its checkpoint is for that: give the other one a --name of its own, or remove the old one:"
                    f" klog stream stop --remove {self.name}",
                )
        self._replace("stream.json", {"version": VERSION, **asdict(wanted)})
        (self.path / "stop").unlink(missing_ok=True)

    def description(self) -> Description | None:
        """None for a name without a stream. Refused for a file that is not one."""
        found = self._read("stream.json")
        if found is None:
            return None
        try:
            if found.pop("version") != VERSION:
                raise ValueError
            return Description(**{**found, "sources": tuple(found["sources"])})
        except (TypeError, KeyError, ValueError):
            raise Refused(f"{self.path / 'stream.json'} does not describe a stream of this version") from None

    def existing(self) -> Description:
        """As `description`; NoSuchThing."""
        found = self.description()
        if found is None:
            raise NoSuchThing(f"stream {self.name} does not exist in {self.path.parent}", hint="klog stream list")
        return found

    # --- How far it is ---

    def report(self, progress: Progress) -> None:
        self._replace("progress.json", asdict(progress))

    def progress(self) -> Progress | None:
        found = self._read("progress.json")
        try:
            return None if found is None else Progress(**found)
        except TypeError:
            return None  # of another version; the next batch writes it again

    # --- Whether it runs ---

    @contextmanager
    def running(self) -> Iterator[None]:
        """While this is held, the stream runs here. Refused where it does already."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a") as file:
            if not _lock(file):
                known = self.description()
                who = "" if known is None else f", as process {known.pid} on {known.host}"
                raise Refused(f"the stream {self.name} runs already{who}", hint=f"klog stream stop {self.name}")
            yield

    def is_running(self) -> bool:
        try:
            with (self.path / "lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True

    def ask_to_stop(self) -> None:
        (self.path / "stop").touch()

    def is_asked_to_stop(self) -> bool:
        return (self.path / "stop").exists()

    def remove(self) -> None:
        """With its checkpoint. Refused while it runs."""
        with self.running():
            shutil.rmtree(self.path)

    # --- Files ---

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found = json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None
        except ValueError:
            raise Refused(f"{self.path / name} is not JSON", hint="remove it; the next start writes it again") from None
        if not isinstance(found, dict):
            raise Refused(f"{self.path / name} is not a JSON object", hint="remove it; the next start writes it again")
        return found

    def _replace(self, name: str, value: dict[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / f".{name}-{os.getpid()}"
        temporary.write_text(json.dumps(value, indent=1) + "\n")
        temporary.replace(self.path / name)


def _lock(file: IO[str]) -> bool:
    """Whether it is locked now. `is_running` holds the lock for an instant, which is not taken for a stream."""
    deadline = time.monotonic() + LOOKED_AT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(LOOKED_AT_S / 10)


def all_streams(state: Path) -> list[StreamFolder]:
    """Those in a folder, by name."""
    if not state.is_dir():
        return []
    return [
        StreamFolder(state, path.parent.name)
        for path in sorted(state.glob("*/stream.json"))
        if _NAME.fullmatch(path.parent.name)
    ]
