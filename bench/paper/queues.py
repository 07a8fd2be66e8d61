"""The message queues of the paper's experiment: ActiveMQ Classic and RabbitMQ, each with its makers' own client.

Both keep messages on disk. ActiveMQ's broker and client are `ActiveMqLoad.java` on its Maven artifacts; RabbitMQ is the
system's (Debian: rabbitmq-server), its client PerfTest. Every port listens on 127.0.0.1 alone.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.maven import ACTIVEMQ_VERSION, PeerMissing, activemq_lib, perf_test_lib
from bench.paper.loads import VALUE_BYTES, Point
from bench.peers import START_TIMEOUT_S
from bench.processes import Process, StartFailed, children, free_port, wait_for_port

QUEUE = "paper"
JAVA_SOURCE = Path(__file__).with_name("ActiveMqLoad.java")
CLIENT_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
BROKER_JVM = ("-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")

GRACE_S = 60.0
"""A client's time beyond its limit: to start, and to wait for what is under way."""


class LoadFailed(Exception):
    """A queue's client ended with an error, or did not end; the message has what it said."""


class ActiveMq:
    """One broker with KahaDB. `sync`: ALWAYS flushes each write before its answer, NEVER leaves it to the system."""

    def __init__(self, folder: Path, sync: str = "ALWAYS") -> None:
        self.name = "activemq"
        self.version = ACTIVEMQ_VERSION
        self.folder = folder
        self.data = folder / "kahadb"
        self.port = free_port()
        self._lib = activemq_lib()
        self._sync = sync
        self._broker: Process | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        command = self._java(BROKER_JVM, "broker", self.port, self.data, self._sync)
        self._broker = Process("ActiveMQ", command, self.folder / "broker.log")
        wait_for_port(self.port, self._broker, START_TIMEOUT_S)

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.stop()

    def produce(self, messages: int, limit_s: float, batch: int = 1) -> list[Point]:
        """Asynchronous sends of persistent messages; with a batch, so many in a transaction."""
        return self._client("produce", messages, limit_s, batch)

    def consume(self, messages: int, limit_s: float, ack: str) -> list[Point]:
        """`ack`: each (INDIVIDUAL_ACKNOWLEDGE), or lazily (DUPS_OK_ACKNOWLEDGE)."""
        return self._client("consume", messages, limit_s, ack)

    def _client(self, verb: str, messages: int, limit_s: float, option: object) -> list[Point]:
        command = self._java(CLIENT_JVM, verb, self.port, QUEUE, messages, round(1000 * limit_s), option)
        lines = _output(command, limit_s).split("\n")
        found = [Point(float(at), int(count)) for at, count in (line.split() for line in lines if line)]
        return [Point(0.0, 0), *found]

    def _java(self, jvm: Sequence[str], *arguments: object) -> list[str]:
        return ["java", *jvm, "-cp", f"{self._lib}/*", str(JAVA_SOURCE), *map(str, arguments)]


class RabbitMq:
    """One node of the system's RabbitMQ, its data, logs and cookie in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.name = "rabbitmq"
        server = next((one for one in map(Path, SERVERS) if one.exists()), None)
        if server is None:
            raise PeerMissing("rabbitmq: no rabbitmq-server on this machine (Debian: apt-get install rabbitmq-server)")
        self._server = server
        self._lib = perf_test_lib()
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self.version = "unknown"
        self._node_port, self._epmd_port = free_port(), free_port()
        self._broker: Process | None = None
        self._epmd: Process | None = None
        for one in (self.data, folder / "log"):
            one.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        if self._epmd is None:
            epmd = shutil.which("epmd")
            if epmd is None:
                raise PeerMissing("rabbitmq: no epmd on the path (Debian: apt-get install erlang-base)")
            command = [epmd, "-port", str(self._epmd_port), "-address", "127.0.0.1"]
            self._epmd = Process("epmd", command, self.folder / "epmd.log")
            wait_for_port(self._epmd_port, self._epmd, START_TIMEOUT_S)
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\ndisk_free_limit.absolute = 100MB\n"
            "log.console = true\nlog.console.level = warning\nlog.file = false\n"
        )
        (self.folder / "plugins").write_text("[].\n")
        log = self.folder / "broker.log"
        self._broker = Process("RabbitMQ", [str(self._server)], log, self._environment())
        wait_for_port(self.port, self._broker, START_TIMEOUT_S)
        self.version = self._server_version()

    def _environment(self) -> Mapping[str, str]:
        return {
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"paper{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.data),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def _server_version(self) -> str:
        found = re.search(r"rabbitmq_server-([\d.]+)", str(self._server.resolve()))
        return found[1] if found else "unknown"

    def stop(self) -> None:
        if self._broker is not None:
            below = children(self._broker.pid)
            self._broker.stop()
            for pid in below:  # the shell that it was started by ends first
                _wait_for_end(pid)
        if self._epmd is not None:
            self._epmd.kill()

    def produce(
        self, messages: int, limit_s: float, *, queue: str = QUEUE, quorum: bool = False, confirm: int | None = None
    ) -> list[Point]:
        """Persistent messages; with `confirm`, at most so many unconfirmed."""
        text = self._perf_test(
            limit_s,
            *("--queue", queue, "--producers", "1", "--consumers", "0", "--pmessages", str(messages)),
            *("--flag", "persistent", "--auto-delete", "false"),
            *(("--quorum-queue",) if quorum else ()),
            *(("--confirm", str(confirm)) if confirm is not None else ()),
        )
        return samples_of(text, "sent" if confirm is None else "confirmed", messages)

    def consume(
        self, messages: int, limit_s: float, *, queue: str = QUEUE, quorum: bool = False, ack_every: int | None = None
    ) -> list[Point]:
        """Without `ack_every` automatically acknowledged; else so many at once, 1,000 unacknowledged at most."""
        acks = ("--autoack",) if ack_every is None else ("--multi-ack-every", str(ack_every), "--qos", "1000")
        text = self._perf_test(
            limit_s,
            *("--queue", queue, "--producers", "0", "--consumers", "1", "--cmessages", str(messages)),
            *("--flag", "persistent", "--auto-delete", "false"),
            *(("--quorum-queue",) if quorum else ()),
            *acks,
        )
        return samples_of(text, "received", messages)

    def _perf_test(self, limit_s: float, *arguments: str) -> str:
        seconds = max(1, round(limit_s))
        return _output(
            [
                *("java", *CLIENT_JVM, "-cp", f"{self._lib}/*", "com.rabbitmq.perf.PerfTest"),
                *("--uri", f"amqp://127.0.0.1:{self.port}", "--size", str(VALUE_BYTES), "--interval", "1"),
                *("--time", str(seconds), *arguments),
            ],
            limit_s,
        )


SERVERS = (
    "/usr/lib/rabbitmq/bin/rabbitmq-server",
    "/usr/local/lib/rabbitmq/bin/rabbitmq-server",
    "/opt/homebrew/sbin/rabbitmq-server",
)
"""Not the one on the path: Debian's wrapper changes to a user of its own."""


def samples_of(text: str, what: str, messages: int) -> list[Point]:
    """PerfTest's lines as a course. `what`: sent, confirmed, received.

    A run of less than a second has no such lines: then it is the average of all its `messages`.

    A line has the rate of the time since the line before: ``time 2.000 s, sent: 21043 msg/s, ...``, or
    ``id: test-1, time: 2.000s, ...`` of older versions. LoadFailed where there is none.
    """
    points = [Point(0.0, 0)]
    count = 0.0
    for line in text.splitlines():
        at = re.search(r"\btime:? ([\d.]+) ?s\b", line)
        rate = re.search(rf"\b{what}: ([\d.]+) msg/s", line)
        if at is None or rate is None:
            continue
        seconds = float(at[1])
        count += float(rate[1]) * (seconds - points[-1].seconds)
        points.append(Point(seconds, round(count)))
    average = re.search(rf"{'receiving' if what == 'received' else 'sending'} rate avg: ([\d.]+) msg/s", text)
    if len(points) == 1 and average is not None and float(average[1]):
        points.append(Point(messages / float(average[1]), messages))
    if len(points) == 1:
        raise LoadFailed(f"PerfTest told no rate of messages {what}: {text[-500:]}")
    while len(points) > 2 and points[-1].messages == points[-2].messages:
        del points[-1]  # it waited for nothing more
    return points


def _output(command: Sequence[str], limit_s: float) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s + GRACE_S, check=False)
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{command[0]} did not end within {limit_s + GRACE_S:g} s") from None
    if done.returncode:
        raise LoadFailed(f"exit {done.returncode}: {(done.stderr or done.stdout)[-800:]}")
    return done.stdout


def _wait_for_end(pid: int) -> None:
    import psutil

    try:
        one = psutil.Process(pid)
        one.wait(20)
    except psutil.NoSuchProcess:
        pass
    except psutil.TimeoutExpired as error:
        one.kill()
        raise StartFailed(f"process {pid} of RabbitMQ did not end: killed") from error
