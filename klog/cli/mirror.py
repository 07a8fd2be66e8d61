"""``klog mirror``: topics of one or many clusters copied into another, for as long as it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from klog.cli import flags, interrupt
from klog.cli.arguments import CodecName, MostRate, Properties
from klog.cli.command import top_command
from klog.cli.flags import flag
from klog.cli.invocation import Invocation
from klog.cli.name_values import settings
from klog.cli.target import OTHER_CLUSTER, PROFILE_SIGN, Target
from klog.cli.watching import Watched, check_watchable
from klog.coordination.zookeeper_access import OPEN_ACCESS, ZooKeeperServers
from klog.errors import UsageError
from klog.names import counted
from klog.record.codec import Codec
from klog.render import Format, Report
from klog.security.client_security import OPEN

if TYPE_CHECKING:
    from klog.client.client_config import ClientConfig

LIVE_EVERY_S = 1.0
ROWS_EVERY_S = 5.0
"""In a pipe: rows that have changed."""
CODEC_SETTINGS = ("compression.type", "compression.codec")
"""A producer's; librdkafka knows both names."""


@top_command("mirror", rows="klog.tools.copying.mirror:MirrorRow", connects=False, own_interrupt=True)
async def mirror(
    invocation: Invocation,
    sources: list[str] | None = flag("--source", "A cluster to copy from.", metavar=OTHER_CLUSTER),
    target: str | None = flag("--target", "The cluster to copy into.", metavar=OTHER_CLUSTER),
    topics: list[str] | None = flag(
        "--topic --whitelist RE", "Topics whose whole name matches this regular expression."
    ),
    exclude: list[str] | None = flag("--exclude --blacklist RE", "Topics to leave out, by regular expression."),
    consumer_configs: list[Path] | None = flag(
        "--consumer-config --consumer.config FILE",
        "A source, by its consumer.properties; group.id and auto.offset.reset count.",
    ),
    producer_config: Path | None = flag(
        "--producer-config --producer.config FILE", "The target, by its producer.properties."
    ),
    rate: MostRate = None,
    compression: CodecName | None = flag("--compression CODEC", "Codec of the copies [the source's]."),
    properties: Properties = None,
    begin: Literal["start", "end"] | None = flag(
        "--from start|end", "Start position of partitions not copied before [start]."
    ),
    group: str | None = flag(
        "--group NAME", "Group that commits the progress in the sources (mirror-ID of the target)."
    ),
    groups: list[str] | None = flag(
        "--groups NAME,...|RE", "Groups whose committed offsets are translated to the target."
    ),
    once: bool = flag("-e --once", "Exit at the end offsets as of start-up."),
    no_settings: bool = flag(
        "--no-settings", "Create topics with the target's defaults, not with the source's settings."
    ),
    offsets: bool = flag("--offsets", "Only show the group offsets of the sources and of the target."),
    timeout: flags.Timeout = None,
    client_config: flags.ClientConfig = None,
) -> Report | int | None:
    """Copy topics of one or more clusters into another, each message exactly once, until stopped.

    Missing topics are created with the same number of partitions and with these settings of the source topic:
    retention.ms, retention.bytes, max.message.bytes, segment.bytes, segment.ms, compression.type,
    message.timestamp.type and its bounds. Existing topics are not changed.

    Keys, headers, timestamps and partitions are kept. The header klog of each message names its origin (6 bytes for the
    source, then the offset there). After a restart the copy continues behind the last message in the target. Progress
    is shown as a live table on a terminal, and as JSON Lines in a pipe. A target that is not klog gets each message at
    least once.

    The config files of 0.8's MirrorMaker are taken: --consumer-config for each source (with zookeeper.connect, its
    brokers are looked up there), --producer-config for the target. Of its settings and those of -X, compression.type
    has an effect, beside those that say how to connect. --client-config has what all of them have in common; the
    settings of a cluster's own file go before it.

    With --groups, the offsets that these groups have committed in the sources are translated and committed in the
    target every 5 s: the offset in the target of the first message copied from that position or from behind it. The
    offset goes back only if the group was rewound in the source. It is found by the headers alone: let nobody else
    write to these topics of the target. A group with members in the target is skipped, and a note names it. Names are
    separated by commas; a name with a character of regular expressions other than the dot is a regular expression for
    the whole name. --offsets shows the committed offsets on both sides.
    """
    from klog.tools.copying import mirror as mirroring
    from klog.tools.copying.cluster_endpoint import ClusterEndpoint
    from klog.tools.copying.group_offsets import GroupNames
    from klog.tools.copying.topics import TopicNames

    check_watchable(invocation, watch=not (once or offsets), flag="the mirror")
    invocation.shared = replace(invocation.shared, timeout=timeout or invocation.shared.timeout)
    common = client_config or invocation.shared.client_config
    base = None if common is None else _config(invocation, common)
    if base is not None and (base.bootstrap or base.zookeeper):
        invocation.warn(f"{base.path}: its addresses have no effect, since --source and --target name the clusters")
    files = [_config(invocation, path, base) for path in consumer_configs or ()]
    into_file = base if producer_config is None else _config(invocation, producer_config, base)
    whence_addresses = [
        *(_reached_by(one, base) for one in sources or ()),
        *[await _address(invocation, file) for file in files],
    ]
    if target is not None:
        target = _reached_by(target, base)
    elif into_file is not None and into_file is not base:
        target = await _address(invocation, into_file)
    for missing, word in ((whence_addresses, "--source"), (target, "--target"), (topics, "--topic")):
        if not missing:
            raise UsageError(f"{word} is missing", hint="klog mirror --source HOST:PORT --target HOST:PORT --topic RE")
    assert target is not None
    reading = files or ([] if base is None else [base])
    resets = {file.given["auto.offset.reset"] for file in reading if file.given.get("auto.offset.reset")}
    named = {file.given["group.id"] for file in reading if file.given.get("group.id")}
    if len(named) > 1 and group is None:
        raise UsageError(f"the config files name several groups: {', '.join(sorted(named))}", hint="--group NAME")
    given = settings(properties)
    client = {**({} if into_file is None else into_file.producer()), **given}
    codec: str | None = compression or next((client[name] for name in CODEC_SETTINGS if name in client), None)
    if unused := sorted(set(given).difference(CODEC_SETTINGS)):
        invocation.warn(f"-X {', '.join(unused)}: no effect on a mirror")
    if begin is None and resets:
        begin = "end" if resets <= {"latest", "largest"} else "start"
    options = mirroring.MirrorOptions(
        topics=TopicNames(topics or (), exclude or ()),
        from_end=begin == "end",
        group=group or next(iter(named), None),
        rate=rate,
        codec=None if codec is None else _codec(codec),
        once=once,
        take_settings=not no_settings,
        groups=GroupNames(groups or ()),
    )

    if not offsets:
        invocation.check_may_change(target)
        for one in whence_addresses:  # the group's progress is committed there
            invocation.check_may_change(one)

    async def side(given: str, role: str) -> ClusterEndpoint:
        servers = await invocation.other_servers(given, f"--{role}")
        one = await ClusterEndpoint(servers, role, timeout_s=invocation.timeout_s, note=invocation.say).open()
        invocation.closing.push_async_callback(one.close)
        return one

    into = await side(target, "target")
    whence = [await side(one, "source") for one in whence_addresses]
    if offsets:
        rows = await mirroring.mirrored_offsets(whence, into, options)
        return Report(invocation.command, mirroring.MirroredOffset, rows)
    running = mirroring.Mirror(whence, into, options)
    screen = _Screen(invocation)
    if await interrupt.stopped_in_order(running.run(screen, every_s=LIVE_EVERY_S if screen.is_live else ROWS_EVERY_S)):
        invocation.say("stopped; the next run continues from here")
    return screen.last()


def _codec(name: str) -> Codec:
    try:
        return Codec[name.upper()]
    except KeyError:
        known = ", ".join(one.label for one in Codec)
        raise UsageError(f"{name!r} is not a codec of {CODEC_SETTINGS[0]}", hint=f"codecs: {known}") from None


def _config(invocation: Invocation, path: Path, base: ClientConfig | None = None) -> ClientConfig:
    from klog.client.client_config import read_client_config

    found = read_client_config(path, base=base)
    for note in found.notes:
        invocation.warn(note)
    return found


def _reached_by(servers: str, base: ClientConfig | None) -> str:
    """The servers, connected to as the common file says; a profile says so itself."""
    from klog.client.servers import Servers

    if base is None or servers.startswith(PROFILE_SIGN):
        return servers
    return Servers(servers, base.security or OPEN, base.access or OPEN_ACCESS)


async def _address(invocation: Invocation, config: ClientConfig) -> str:
    """The brokers of a file: those that it names, or those that its ZooKeeper knows."""
    from klog.cli.connect import Connection
    from klog.client.servers import Servers

    security, access = config.security or OPEN, config.access or OPEN_ACCESS
    if config.bootstrap is not None:
        return Servers(config.bootstrap, security, access)
    if config.zookeeper is None:
        raise UsageError(f"{config.path} has neither bootstrap.servers nor zookeeper.connect")
    target = Target(None, ZooKeeperServers(config.zookeeper, access), str(config.path), security=security)
    return await Connection(target, invocation.timeout_s, invocation.session).bootstrap_servers()


class _Screen:
    """Shows rows while it runs: all of them in their place, or those that have changed; or only the last ones."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._watched = Watched(invocation)
        self.is_live = self._watched.is_live
        self._streams = invocation.output is Format.JSONL
        self._rows: list[Any] = []

    def __call__(self, rows: list[Any]) -> None:
        if self.is_live or self._streams:
            shown = () if self.is_live else set(self._rows)
            self._watched.show(self._invocation.report([row for row in rows if row not in shown]))
        self._rows = rows

    def last(self) -> Report | None:
        """What is still to be shown at the end."""
        messages = sum(row.messages for row in self._rows)
        self._invocation.say(f"{counted(messages, 'message')} copied")
        return None if self.is_live or self._streams else self._invocation.report(self._rows)
