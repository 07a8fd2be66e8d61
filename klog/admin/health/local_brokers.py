"""What this machine knows of brokers that do not serve: how one is started, its log, and the process that hangs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from klog.admin.local_state import LocalCluster, Part, load_plan, look, restart_command, running_clusters, why_not_here
from klog.coordination import embedded

LOCAL: Final = "local"
"""The folder of HOME that `klog up` takes without ``--dir``."""
LAST_WORDS_WITHIN: Final = timedelta(minutes=1)
LOG_END_BYTES: Final = 64 * 1024
_LINE: Final = re.compile(r"^(?:(\d{4}-\d\d-\d\dT[\d:.]+Z) +([A-Z]+) +|klog broker start: )(.*)$", re.MULTILINE)
"""A line of a broker's log: time, level, and what it says; or why the command failed."""
_FAILED: Final = ("ERROR", "CRITICAL")
_SERVES: Final = re.compile(r"server\.broker: broker \d+ serves")


class LogLine(NamedTuple):
    """A line of a broker's log. ``time`` None: the command failed, and says why."""

    time: datetime | None
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class LocalBroker:
    """A broker of a cluster that `klog up` made here. ``start``: the command that starts it; ``log_end``: the end of
    its log, the oldest line first, from when it last served; ``runs``: its process is there."""

    address: str
    start: str
    log_file: Path
    log_end: tuple[LogLine, ...] = ()
    runs: bool = False

    def last_error(self, about: str | None = None) -> LogLine | None:
        """The last error that it logged: about something that its text names, or just before its log ends."""
        last = next((one.time for one in reversed(self.log_end) if one.time is not None), None)
        for one in reversed(self.log_end):
            if about is None and one.time is not None and last is not None and last - one.time > LAST_WORDS_WITHIN:
                break
            if one.level in _FAILED and (about or "") in one.text:
                return one
        return None


def local_brokers(home: Path, cluster_id: str | None) -> dict[int, LocalBroker]:
    """The brokers of this cluster, if it is a local one of which anything runs. Blocks."""
    for cluster in running_clusters(home):
        if cluster_id is not None and cluster.cluster_id == cluster_id:
            return _brokers_of(home, cluster)
    return {}


def brokers_in(home: Path, directory: Path) -> dict[int, LocalBroker]:
    """The brokers of the local cluster in a folder, running or not. Blocks."""
    cluster = look(directory)
    return {} if cluster is None else _brokers_of(home, cluster)


def start_command(home: Path, directory: Path) -> str:
    """What starts all that is missing of a local cluster."""
    is_default = directory.resolve() == (home / LOCAL).resolve()
    return "klog up --detach" + ("" if is_default else f" --dir {shlex.quote(str(directory))}")


def _brokers_of(home: Path, cluster: LocalCluster) -> dict[int, LocalBroker]:
    plan = load_plan(cluster.directory)
    is_kept = plan is not None and plan.processes and any(one.id is not None for one in cluster.live)
    start = restart_command(cluster.directory) if is_kept else start_command(home, cluster.directory)
    return {one.id: _broker(one, start) for one in cluster.parts if one.id is not None}


def _broker(part: Part, start: str) -> LocalBroker:
    text = embedded.tail(part.log_file, most=LOG_END_BYTES)
    *_, begin = (0, *(found.start() for found in _SERVES.finditer(text)))
    lines = (
        LogLine(datetime.fromisoformat(one[1]) if one[1] else None, one[2] or _FAILED[0], one[3])
        for one in _LINE.finditer(text, begin)
    )
    return LocalBroker(part.address, start, part.log_file, tuple(lines), part.identity is not None)


def processes_at(addresses: Collection[str]) -> dict[str, tuple[int, ...]]:
    """HOST:PORT -> the processes of klog's brokers that listen there, as far as they are on this machine. Blocks."""
    ends = {address: address.rpartition(":") for address in addresses}
    wanted = {address: int(port) for address, (host, _, port) in ends.items() if why_not_here(host.strip("[]")) is None}
    if not wanted:
        return {}
    import psutil

    listening: dict[int, set[int]] = {}
    try:
        for one in psutil.net_connections("tcp"):
            if (
                one.status == psutil.CONN_LISTEN
                and one.pid is not None
                and one.laddr
                and one.laddr.port in wanted.values()
            ):
                words = psutil.Process(one.pid).cmdline()
                if "broker" in words and any("klog" in word for word in words):
                    listening.setdefault(one.laddr.port, set()).add(one.pid)
    except (psutil.Error, OSError):
        return {}  # another user's, or gone meanwhile
    return {address: tuple(sorted(listening[port])) for address, port in wanted.items() if port in listening}
