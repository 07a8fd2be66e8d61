"""One broker's process of a local cluster, from its start until it serves.

These functions block, and import late what starting a process does not need: see klog.admin.local_cluster.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from klog.admin.local_state import Part, log_dir, log_file, look, pid_file, recorded_clusters
from klog.coordination import embedded, process
from klog.coordination.process import ProcessId
from klog.errors import HostError, NoSuchThing, TimedOut, UsageError
from klog.security.client_security import OPEN, ClientSecurity

READY_LINE_BYTES_MAX = 1 << 16
SERVING_PAUSE_S = 0.02
ANSWER_S = 3.0
"""A broker on this machine that has not answered by then is asked again, or taken for silent."""
ZOOKEEPER_LOOK_S = 0.2
"""A broker goes on looking for ZooKeeper for seconds: so look now and then whether that has ended."""


@dataclass(frozen=True, slots=True)
class StartingBroker:
    """A broker's process between its start and its line `ready HOST:PORT`, which it writes to a pipe we read."""

    number: int
    identity: ProcessId
    ready: int
    log_file: Path
    log_begin: int
    """How much of its log is of earlier runs."""
    child: Any

    @property
    def name(self) -> str:
        """As of its part."""
        return f"broker {self.number}"

    @classmethod
    def spawn(
        cls,
        directory: Path,
        number: int,
        address: str,
        zookeeper: str,
        properties: Mapping[str, str],
        processes: int | None = None,
        config: Path | None = None,
    ) -> StartingBroker:
        """``processes``: so many brokers, of which this is the first one, under one parent. ``config``: a file of
        settings, for those that ``ps`` must not show."""
        log = log_file(directory, number)
        receive, send = os.pipe()
        where = ("--id", number, "--dir", log_dir(directory, number), "--listen", address, "-z", zookeeper)
        command, env = process.python_command("klog", "broker", "start", *where, "--ready-fd", send)
        if config is not None:
            command += ["--config", str(config)]
        if processes is not None:
            command += ["--processes", str(processes)]
        for name, value in properties.items():
            command += ["-X", f"{name}={value}"]
        try:
            with log.open("ab") as output:
                begin = output.tell()
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=directory,
                    env=env,
                    pass_fds=(send,),
                    start_new_session=True,
                )
        except BaseException:
            os.close(receive)
            raise
        finally:
            os.close(send)
        identity = ProcessId.of(child.pid) or ProcessId(child.pid, "ended")
        process.record(pid_file(directory, number), identity)
        return cls(number, identity, receive, log, begin, child)

    def await_ready(self, zookeeper: ProcessId, zookeeper_log: Path, deadline: float) -> None:
        """Return at its line; HostError when it, or ZooKeeper under it, ends without; TimedOut."""
        line = b""
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimedOut(f"{self.name} is not ready; its log: {self.log_file}")
            if select.select([self.ready], [], [], min(left_s, ZOOKEEPER_LOOK_S))[0]:
                part = os.read(self.ready, READY_LINE_BYTES_MAX)
                line += part
                if b"\n" in line:
                    return
                if not part or len(line) > READY_LINE_BYTES_MAX:
                    self.child.wait()
                    raise _ended(self.name, self.log_file, self.log_begin)
            elif not zookeeper.is_alive():
                raise _ended("ZooKeeper", zookeeper_log)


def _ended(what: str, log_file: Path, since: int = 0) -> HostError:
    end = embedded.tail(log_file, since)
    return HostError(
        f"{what} ended while it was starting; the end of its log:\n{end or '(nothing)'}", hint=f"its log: {log_file}"
    )


def log_of(broker: int, home: Path, directory: Path | None = None) -> Path:
    """The log of a broker of a local cluster: of the one in the folder, or of the only one here that has the broker.

    NoSuchThing without one, UsageError where there are several.
    """
    here = [look(directory)] if directory is not None else recorded_clusters(home)
    found = [(one.directory, part) for one in here if one is not None for part in one.parts if part.id == broker]
    running = [one for one in found if one[1].identity is not None]
    if not found:
        where = f"in {directory}" if directory is not None else "on this machine"
        raise NoSuchThing(
            f"no local cluster {where} has a broker {broker}",
            hint="of a broker that `klog broker start` runs the log is its stderr; --dir DIR names a cluster's folder",
        )
    if len(found) > 1 and len(running) != 1:
        raise UsageError(
            f"broker {broker} is in several local clusters: {', '.join(str(one) for one, _ in found)}",
            hint="say which is meant: --dir DIR",
        )
    file = (running[0] if len(found) > 1 else found[0])[1].log_file
    if not file.exists():
        raise NoSuchThing(f"broker {broker} has never been started: there is no {file}")
    return file


def await_serving(
    parts: Sequence[Part],
    deadline: float,
    security: ClientSecurity = OPEN,
    log_begins: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Return when each of these brokers answers, and knows a controller and all the others.

    A broker listens before it registers (rule R6), and hears of the others from the controller only after that.
    ``log_begins``: where this run begins in the log of a broker. HostError with the end of its log when any of them
    ends, for then the others wait in vain; TimedOut.
    """
    wanted = {part.id for part in parts}
    for part in parts:
        while not wanted <= _known_to(part.address, security):
            for one in parts:
                if one.identity is None or not one.identity.is_alive():
                    raise _ended(one.name, one.log_file, log_begins.get(one.name, 0))
            if time.monotonic() >= deadline:
                raise TimedOut(f"{part.name} runs at {part.address} but does not serve; its log: {part.log_file}")
            time.sleep(SERVING_PAUSE_S)


def controller_of(parts: Sequence[Part], security: ClientSecurity = OPEN) -> int | None:
    """The id of the broker that is controller, as the first of them that answers has it; None when none says."""
    for part in parts:
        answer = _metadata(part.address, security)
        if answer is not None and answer.controller_id >= 0:
            return int(answer.controller_id)
    return None


def _known_to(address: str, security: ClientSecurity) -> set[int]:
    """The ids of the brokers that the broker there knows; none while it knows no controller, or does not answer."""
    answer = _metadata(address, security)
    return set() if answer is None or answer.controller_id < 0 else {int(broker.node_id) for broker in answer.brokers}


def _metadata(address: str, security: ClientSecurity) -> Any | None:
    from klog.client.blocking import BlockingChannel
    from klog.errors import CannotConnect, PeerError
    from klog.protocol import codec
    from klog.protocol.apis import ApiKey

    host, _, port = address.rpartition(":")
    try:
        channel = BlockingChannel.connect(
            host.strip("[]"), int(port), connect_timeout_s=ANSWER_S, timeout_s=ANSWER_S, security=security
        )
        try:
            return channel.request(codec.request(ApiKey.METADATA, 1, topics=[]))
        finally:
            channel.close()
    except (CannotConnect, TimedOut, PeerError):
        return None
