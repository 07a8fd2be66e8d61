"""``klog up`` and ``klog down``: a cluster on this machine."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Annotated, NoReturn

from klog.admin import local_cluster, local_state
from klog.admin.local_state import LocalCluster, the_recorded_folder
from klog.cli import interrupt
from klog.cli.arguments import Properties, broker_settings
from klog.cli.command import top_command
from klog.cli.flags import flag
from klog.cli.invocation import Invocation
from klog.cli.progress import at_work_without_loop
from klog.cli.target import klog_home, profile_of_addresses
from klog.config import units
from klog.errors import NoSuchThing, UsageError
from klog.render import Report

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Directory = Annotated[
    Path | None, flag("--dir DIR", "Data folder; that of the one cluster here, or `local` in ~/.klog.")
]


class _StopAsked(BaseException):
    """A signal asked the foreground to stop. A BaseException: no handler of errors on the way may take it for one."""


OWN_SETTINGS = {
    "zookeeper.connect": "--zookeeper-port is of its own ZooKeeper; `klog broker start -z` joins another one",
    "broker.id": "--brokers N has the ids 1 to N; `klog broker start --id`",
    **dict.fromkeys(("log.dir", "log.dirs"), "--dir DIR has the data of all; `klog broker start --dir`"),
}
"""Settings that brokers of a local cluster cannot be given, each with what to use instead."""


@top_command("up", rows="klog.admin.local_cluster:Started", connects=False, own_interrupt=True)
def up(
    invocation: Invocation,
    directory: Directory = None,
    brokers: int | None = flag("--brokers N", "Number of brokers [1].", min=1),
    processes: int | None = flag("--processes N", "Number of brokers, kept alive by one parent process.", min=1),
    port: int | None = flag("--port PORT", "Port of the first broker [9092].", min=1, max=65535),
    zookeeper_port: int | None = flag(
        "--zookeeper-port PORT", "ZooKeeper's port; a free one if not given.", min=1, max=65535
    ),
    zookeeper_heap: int | None = flag(
        "--zookeeper-heap SIZE", "ZooKeeper's maximum heap; see `klog zookeeper start --help`.", parser=units.parse_size
    ),
    secure: bool = flag("--secure", "Close the cluster: TLS, users and permissions, from its first start on."),
    detach: bool = flag("-d --detach", "Run in the background; return when ready."),
    properties: Properties = None,
) -> int:
    """Run ZooKeeper and brokers on this machine, ready to use.

    Runs in the foreground until Ctrl-C, which shuts everything down. A broker that cannot start does not stop the
    others: exit 1, and the last line says why. Another run on the same folder keeps its data,
    leaves running servers alone, starts missing ones, and with a larger --brokers adds brokers. Every other command
    finds the running cluster. Brokers have the ids 1 to N and the ports PORT to PORT+N-1.

    With two brokers a topic has two replicas by default. With three or more it has three, of which two must have an
    acknowledged message (default.replication.factor, min.insync.replicas; -X changes them). With --processes a topic
    has one: see `klog broker start --help`. With -X metrics.port=P
    broker 1 serves metrics on port P, broker 2 on P+1, and so on.

    With --secure the brokers take encrypted connections of known users only. Certificates and the administrator's
    client.properties are written to `security` in the data folder; every command on this machine uses them.
    """
    if brokers is not None and processes is not None:
        raise UsageError(
            "--brokers and --processes exclude each other", hint="--brokers for replicas, --processes for cores"
        )
    home = klog_home()
    if directory is None:
        directory = the_recorded_folder(home)
        if directory is not None and directory != (home / "local").resolve():
            invocation.say(f"the local cluster in {directory}")
    begun = time.monotonic()
    given = broker_settings(properties)
    if given:
        from klog.config.broker import ALIASES, BrokerConfig

        for name in given:
            hint = OWN_SETTINGS.get(ALIASES.get(name, name))
            if hint is not None:
                raise UsageError(f"`klog up` itself sets {name} of each broker", hint=hint)
        # The brokers say so too, but in their logs.
        for warning in BrokerConfig.parse(given, "-X").warnings:
            invocation.warn(warning)

    def stop() -> NoReturn:
        raise _StopAsked

    handler = interrupt.stopping(stop)
    for number in STOP_SIGNALS:
        signal.signal(number, handler)
    try:
        with at_work_without_loop(invocation):
            cluster, rows = local_cluster.up(
                directory,
                home,
                brokers=brokers,
                processes=processes,
                port=port,
                zookeeper_port=zookeeper_port,
                zookeeper_heap_bytes=zookeeper_heap,
                properties=given or None,
                secure=secure,
            )
        ms = (time.monotonic() - begun) * 1000
        ready = f"ready in {ms:,.0f} ms: bootstrap {cluster.bootstrap}, zookeeper {cluster.zookeeper}"
        code = invocation.show(
            invocation.report(rows, notes=(ready, *cluster.notes), footer=f"data in {cluster.directory}")
        )
        for row in rows:
            if row.error is not None:
                invocation.say(f"{row.message}; its log: {row.log_file}; when that is mended: `klog up`")
        if detach:
            return code
        invocation.say("stop with Ctrl-C")
        return max(code, _stay(invocation, cluster))
    except _StopAsked:
        if detach:  # what this call has started is stopped again; what ran before goes on
            raise KeyboardInterrupt from None
        invocation.say("shutting down; press Ctrl-C again to exit now")
        try:
            local_cluster.down(directory or home / "local", home)
        except NoSuchThing:
            pass  # stopped before anything was made
        return 0
    finally:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@top_command("down", rows="klog.admin.local_cluster:Stopped", connects=False, asks=True)
def down(invocation: Invocation, directory: Directory = None) -> Report:
    """Shut down everything that `klog up` started, and wait until it has stopped.

    Asks first if a protected profile has the cluster's address.
    """
    here = local_state.look(directory) if directory is not None else local_state.the_running_cluster(klog_home())
    if here is not None and here.live:
        running = [local_cluster.Stopped(part.kind, part.id, part.address, "running", None) for part in here.live]
        invocation.confirm(
            f"Stop the cluster in {here.directory}",
            invocation.report(running),
            everywhere=False,
            of=profile_of_addresses(here.bootstrap, here.zookeeper),
        )
    if directory is None or here is not None:  # otherwise `down` says that there was never one
        invocation.end_dry_run("no local cluster is running")
    with at_work_without_loop(invocation):
        rows = local_cluster.down(directory, klog_home())
    killed = any(row.state == "killed" for row in rows)
    return invocation.report(rows, failed=killed, footer=None if rows else "no local cluster is running")


def _stay(invocation: Invocation, cluster: LocalCluster) -> int:
    """Wait until the whole cluster has stopped; `_StopAsked` ends it earlier."""
    here: LocalCluster | None = cluster
    while here is not None and here.live:
        ended = local_cluster.await_end(here)
        here = local_cluster.look(cluster.directory)
        if ended is not None and here is not None and here.live:
            invocation.warn(f"{ended.name} has stopped; see {ended.log_file}; restart it with `klog up`")
    invocation.say(f"the cluster in {cluster.directory} has stopped")
    return 0
