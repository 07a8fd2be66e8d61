"""``klog broker``: start, stop, log, list, describe, config."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from klog.cli.arguments import Properties, broker_settings
from klog.cli.command import Noun
from klog.cli.flags import argument, duration, flag
from klog.cli.invocation import Invocation
from klog.cli.name_cache import remember
from klog.cli.progress import counting
from klog.cli.target import klog_home
from klog.config import BrokerConfig, read_properties
from klog.errors import UsageError
from klog.names import counted
from klog.render import Report
from klog.render.log_lines import log_to_stderr
from klog.render.visible import for_stream

if TYPE_CHECKING:
    from klog.admin.brokers import BrokerStop

PROCESSES_MAX = 256

_log = logging.getLogger("klog.config")

broker = Noun("broker", "Start, stop, list and configure brokers.")

BrokerId = Annotated[int, argument("ID", "The broker's id.", min=0)]


@broker.command("start", connects=False, own_interrupt=True)
def start(
    invocation: Invocation,
    config: Path | None = flag("--config FILE", "Settings file in the format of Kafka's server.properties."),
    id: int | None = flag("--id ID", "Broker id (broker.id).", min=0),
    directory: str | None = flag("--dir DIR,...", "Log directories (log.dirs).", parser=str),
    listen: str | None = flag("--listen HOST:PORT", "Address to listen on [127.0.0.1]."),
    advertise: str | None = flag("--advertise HOST:PORT", "Address advertised to clients."),
    metrics_port: int | None = flag("--metrics-port PORT", "Port for Prometheus metrics.", min=0, max=65535),
    zookeeper: str | None = flag(
        "-z --zookeeper HOST:PORT,.../CHROOT",
        "ZooKeeper of the cluster (zookeeper.connect); a missing chroot is created.",
    ),
    properties: Properties = None,
    log_format: Literal["text", "json"] = flag("--log-format text|json", "Format of the log lines on stderr.", "text"),
    ready_fd: int | None = flag("--ready-fd FD", "File descriptor that gets a line when the broker is ready.", min=0),
    processes: int | None = flag(
        "--processes N", "Number of brokers, each a process of its own [1].", min=1, max=PROCESSES_MAX
    ),
) -> int:
    """Run one broker, or several of one configuration, in the foreground.

    Settings come from --config, then from -X, then from the flags; a later one overrides an earlier one. SIGTERM and
    Ctrl-C shut the broker down: it transfers its leaderships, then flushes and closes its logs.

    A broker uses one core and a little more; --processes N uses the others. The brokers have the ids ID to ID+N-1, and
    each port counts up with them. Log directories are shared out; with fewer of them than brokers, some brokers get a
    folder `broker.ID` in one. A broker that ends by a fault is started again.
    """
    given = {
        "broker.id": id,
        "log.dirs": directory,
        "listeners": _listener(listen, "--listen"),
        "advertised.listeners": _listener(advertise, "--advertise"),
        "metrics.port": metrics_port,
        "zookeeper.connect": zookeeper,
    }
    layers = [
        (str(config), read_properties(config) if config is not None else {}),
        ("-X", broker_settings(properties)),
        ("flags", {name: str(value) for name, value in given.items() if value is not None}),
    ]
    log_to_stderr(log_format, _level(invocation))
    broker_config = BrokerConfig.layered(layers)
    for warning in broker_config.warnings:
        _log.warning(warning)
    if processes is not None:
        from klog.config.processes import configs_of_processes
        from klog.server import processes as several

        configs = configs_of_processes(broker_config, processes)
        return several.run(configs, log_format, _level(invocation), ready_fd=ready_fd)
    from klog.coordination.process import RESTART_CODE
    from klog.server import broker as server

    code = server.run(broker_config, ready_fd=ready_fd)
    return code if code != RESTART_CODE else _start_again(ready_fd)


def _start_again(ready_fd: int | None) -> int:
    """Run this command again in the same process: to what started it, nothing has ended."""
    words = list(sys.orig_argv)
    if ready_fd is not None:  # the line was written, and the descriptor is closed
        at = next(number for number, word in enumerate(words) if word.startswith("--ready-fd"))
        del words[at : at + (1 if "=" in words[at] else 2)]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *words[1:]])


def _listener(address: str | None, flag: str) -> str | None:
    """``HOST:PORT`` as Kafka writes it, ``PLAINTEXT://HOST:PORT``. Without a host it listens on all addresses."""
    if address is None or "://" in address:
        return address
    port = address.rpartition(":")[2]
    if ":" not in address or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise UsageError(
            f"{flag} must be HOST:PORT with a port between 0 and 65535, got {address!r}",
            hint=f"write for example {flag} 127.0.0.1:9092",
        )
    return f"PLAINTEXT://{address}"


def _level(invocation: Invocation) -> int:
    if invocation.shared.quiet:
        return logging.ERROR
    return logging.DEBUG if invocation.shared.verbose else logging.INFO


@broker.command("stop", rows="klog.admin.brokers:BrokerStopped", asks=True, changes=True)
async def stop(
    invocation: Invocation,
    id: BrokerId,
    wait: float = flag("--wait DURATION", "Time limit (30s).", 30.0, parser=duration, show_default=False),
) -> Report:
    """Shut a broker down: transfer its leaderships, then flush and close its logs.

    Asks first where partitions have no other in-sync replica, while other brokers are alive; a protected cluster always
    asks.
    """
    from klog.admin import brokers
    from klog.admin.undo import no_way_back

    cluster = await invocation.cluster()
    planned = await brokers.preview_stop(cluster, id)
    consequence = f"{_outage([planned])}; {no_way_back('broker-stop')}"
    preview = Report(invocation.command, brokers.BrokerStop, [planned])
    stops_part = planned.offline > 0 and len(await cluster.brokers()) > 1
    invocation.confirm(f"Stop broker {id}", preview, consequence=consequence, everywhere=stops_part)
    with counting(invocation, "brokers", 1) as count:
        count.about = f"broker {id} shuts down"
        stopped = await brokers.stop_broker(cluster, id, wait_s=wait)
    return invocation.report([stopped], failed=not stopped.stopped)


@broker.command("restart", rows="klog.admin.broker_restart:BrokerRestarted", asks=True, changes=True)
async def restart(
    invocation: Invocation,
    ids: list[int] | None = argument("ID", "The brokers, in this order.", min=0),
    host: str | None = flag("--host HOST", "All brokers on this host."),
    every: bool = flag("--all", "All brokers, host by host, the controller last."),
    wait: float = flag(
        "--wait DURATION", "Time limit for each broker (2m).", 120.0, parser=duration, show_default=False
    ),
) -> Report:
    """Restart brokers one at a time, each with what it is started with.

    A broker is restarted only when every partition that it shares with others is in sync. It moves its leaderships,
    stops, starts again, and is in sync again before the next one is restarted. If one does not succeed, the
    following ones are left alone. Partitions without another replica are not served during their broker's restart.
    Asks first on a protected cluster.
    """
    from klog.admin import broker_restart, brokers

    if sum((bool(ids), host is not None, every)) != 1:
        raise UsageError("expected broker ids, or --host HOST, or --all", hint="for example: klog broker restart 1 2")
    cluster = await invocation.cluster()
    chosen = ids or (
        await brokers.brokers_on(cluster, host) if host is not None else await broker_restart.every_broker(cluster)
    )
    planned = await broker_restart.preview_restart(cluster, chosen)
    preview = Report(invocation.command, brokers.BrokerStop, planned)
    question = f"Restart {counted(len(planned), 'broker')}"
    invocation.confirm(question, preview, consequence=_outage(planned), everywhere=False)
    rows = []
    with counting(invocation, "brokers", len(chosen)) as count:
        async for row in broker_restart.restart_brokers(cluster, chosen, wait_s=wait, count=count):
            rows.append(row)
            if row.restarted and len(rows) < len(chosen):
                invocation.say(f"broker {row.broker} has restarted; broker {chosen[len(rows)]} is next")
    left = chosen[len(rows) :]
    footer = f"not restarted: {', '.join(map(str, left))}" if left else None
    return invocation.report(rows, failed=not rows[-1].restarted, footer=footer)


def _outage(planned: Sequence[BrokerStop]) -> str:
    led, offline = (sum(getattr(one, name) for one in planned) for name in ("leaders", "offline"))
    moved = f"leaders change in {counted(led - offline, 'partition')}"
    if not offline:
        return moved
    return f"{moved}; {counted(offline, 'partition')} not served until it is back: no other replica is in sync"


@broker.command("log", connects=False)
def show_log(
    invocation: Invocation,
    id: BrokerId,
    last: int = flag("-n --last N", "Only the last N lines.", 20, min=0),
    follow: bool = flag("-f --follow", "Go on with what is logged, until Ctrl-C."),
    directory: Path | None = flag("--dir DIR", "Data folder of the cluster, if several are here."),
) -> int:
    """Show the log of a broker that `klog up` runs on this machine, dead or alive."""
    from klog.admin.local_broker import log_of

    file = log_of(id, klog_home(), directory)
    invocation.say(str(file))
    if follow:
        return subprocess.run(["tail", "-n", str(last), "-F", str(file)], check=False).returncode
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in deque(lines, maxlen=last):
            sys.stdout.write(for_stream(line.rstrip("\n"), sys.stdout) + "\n")
    return 0


@broker.command("list", rows="klog.admin.brokers:BrokerRow")
async def list_brokers(
    invocation: Invocation, host: str | None = flag("--host HOST", "Only brokers on this host.")
) -> list[Any]:
    """List the live brokers."""
    from klog.admin import brokers

    rows = await brokers.list_brokers(await invocation.cluster())
    remember(invocation.target, "brokers", [row.broker for row in rows])
    return [row for row in rows if host is None or row.host == host]


@broker.command("describe", rows="klog.admin.brokers:BrokerRow")
async def describe(invocation: Invocation, id: BrokerId) -> Report:
    """Show one broker, and its listeners: whether messages go out by sendfile, or klog encrypts them."""
    from klog.admin import brokers

    row = await brokers.describe_broker(await invocation.cluster(), id)
    return invocation.report([row], notes=tuple(f"listener {one}" for one in row.listeners or ()))


@broker.command("config", rows="klog.admin.brokers:BrokerSetting")
async def config(
    invocation: Invocation, id: int | None = argument("ID", "Broker id; any broker if not given.", min=0)
) -> list[Any]:
    """Show every setting of a broker: value, source, default and meaning."""
    from klog.admin import brokers

    return await brokers.broker_settings(await invocation.cluster(), id)
