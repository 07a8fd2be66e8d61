"""``klog broker``: start, stop, list, describe, config."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from klog.cli.arguments import Properties, broker_settings
from klog.cli.command import Noun
from klog.cli.flags import duration
from klog.cli.invocation import Invocation
from klog.cli.log_lines import log_to_stderr
from klog.cli.name_cache import remember_brokers
from klog.config import BrokerConfig, read_properties
from klog.errors import UsageError
from klog.render import Report

_log = logging.getLogger("klog.config")

broker = Noun("broker", "Start, stop, list and configure brokers.")

BrokerId = Annotated[int, typer.Argument(metavar="ID", min=0, help="The broker's id.")]


@broker.command("start", connects=False, own_interrupt=True)
def start(
    invocation: Invocation,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings file in the format of Kafka's server.properties."),
    ] = None,
    id: Annotated[int | None, typer.Option("--id", metavar="ID", min=0, help="Broker id (broker.id).")] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", metavar="DIR,...", parser=str, help="Log directories (log.dirs).")
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="Address to listen on [127.0.0.1].")
    ] = None,
    advertise: Annotated[
        str | None, typer.Option("--advertise", metavar="HOST:PORT", help="Address advertised to clients.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", metavar="PORT", min=0, max=65535, help="Port for Prometheus metrics."),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "-z",
            "--zookeeper",
            metavar="HOST:PORT,.../CHROOT",
            help="ZooKeeper of the cluster (zookeeper.connect); a missing chroot is created.",
        ),
    ] = None,
    properties: Properties = None,
    log_format: Annotated[
        Literal["text", "json"],
        typer.Option("--log-format", metavar="text|json", help="Format of the log lines on stderr."),
    ] = "text",
    ready_fd: Annotated[
        int | None,
        typer.Option(
            "--ready-fd", metavar="FD", min=0, help="File descriptor that gets a line when the broker is ready."
        ),
    ] = None,
) -> int:
    """Run one broker in the foreground.

    Settings come from --config, then from -X, then from the flags; a later one overrides an earlier one. SIGTERM and
    Ctrl-C shut the broker down: it transfers its leaderships, then flushes and closes its logs.
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
    from klog.server import broker as server

    return server.run(broker_config, ready_fd=ready_fd)


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


@broker.command("stop", rows="klog.admin.brokers:BrokerStopped", changes=True)
async def stop(
    invocation: Invocation,
    id: BrokerId,
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="DURATION", parser=duration, help="Time limit (30s).", show_default=False),
    ] = 30.0,
) -> Report:
    """Shut a broker down: transfer its leaderships, then flush and close its logs."""
    from klog.admin import brokers

    stopped = await brokers.stop_broker(await invocation.cluster(), id, wait_s=wait)
    return invocation.report([stopped], failed=not stopped.stopped)


@broker.command("list", rows="klog.admin.brokers:BrokerRow")
async def list_brokers(invocation: Invocation) -> list[Any]:
    """List the live brokers."""
    from klog.admin import brokers

    rows = await brokers.list_brokers(await invocation.cluster())
    remember_brokers(invocation.target, [row.broker for row in rows])
    return rows


@broker.command("describe", rows="klog.admin.brokers:BrokerRow")
async def describe(invocation: Invocation, id: BrokerId) -> list[Any]:
    """Show one broker."""
    from klog.admin import brokers

    return [await brokers.describe_broker(await invocation.cluster(), id)]


@broker.command("config", rows="klog.admin.brokers:BrokerSetting")
async def config(
    invocation: Invocation,
    id: Annotated[int | None, typer.Argument(metavar="ID", min=0, help="Broker id; any broker if not given.")] = None,
) -> list[Any]:
    """Show every setting of a broker: value, source, default and meaning."""
    from klog.admin import brokers

    return await brokers.broker_settings(await invocation.cluster(), id)
