"""How flags and arguments are declared, and the flags that commands share.

``klog.cli.command`` adds those that a command asks for (``klog.cli.traits``) to the command's own parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klog.errors import UsageError
from klog.render import Format

if TYPE_CHECKING:
    from klog.cli.screen import Screen
    from klog.cli.session import Session

GLOBAL_PANEL = "Common flags"
"""``rich_help_panel`` of these flags: help lists them apart from the command's own."""

DEFAULT_TIMEOUT_S = 10.0


def duration(word: str) -> float:
    """``500ms``, ``10s``, ``2h`` in seconds."""
    from klog.config.units import parse_duration_ms

    return parse_duration_ms(word) / 1000


def limit(word: str) -> float:
    """A duration that leaves any time at all, in seconds."""
    seconds = duration(word)
    if seconds <= 0:
        raise UsageError(f"must be above 0, got {word}")
    return seconds


def named(word: str) -> str:
    """A cluster's name or address. An empty one comes of a variable that is not set, and would mean another cluster."""
    if not word.strip():
        raise UsageError("must not be empty", hint="without the flag klog takes the environment or a profile")
    if not word.isprintable():
        raise UsageError(f"must be printable text, got {word!r}")
    return word


def flag(words: str, help: str, default: Any = None, **more: Any) -> Any:
    """A flag: ``-p --partitions N``, its words and the name of its value. ``...`` as the default: it must be given.

    As a parameter's default, or in ``Annotated`` for a flag of several commands, each with its default.
    """
    names = words.split()
    if not names[-1].startswith("-"):
        more["metavar"] = names.pop()
    return typer.Option(default, *names, help=help, **more)


def argument(name: str, help: str, default: Any = None, **more: Any) -> Any:
    """An argument; otherwise as `flag`."""
    return typer.Argument(default, metavar=name, help=help, **more)


def _common(words: str, help: str, **more: Any) -> Any:
    """A flag of many commands."""
    return flag(words, help, rich_help_panel=GLOBAL_PANEL, **more)


BootstrapServer = Annotated[
    str | None,
    _common(
        "-B --bootstrap-server --bootstrap-servers --broker-list HOST:PORT,...",
        "The cluster, by the addresses of one or more brokers.",
        parser=named,
    ),
]
ZooKeeperFlag = Annotated[
    str | None, _common("-z --zookeeper HOST:PORT,.../CHROOT", "The cluster, by its ZooKeeper address.", parser=named)
]
ClientConfig = Annotated[
    Path | None,
    _common("--client-config FILE", "Client settings: consumer.properties or producer.properties of Kafka."),
]
Timeout = Annotated[float | None, _common("--timeout DURATION", "Time limit for each answer (10s).", parser=limit)]
_FORMATS = "Output format: table, wide, json, jsonl, yaml, tsv, or schema (the columns)."


def _with_schema(ctx: typer.Context, value: Format | None) -> Format | None:
    """``-o schema``: what else the command needs is not wanted of who asks for its columns."""
    asked = value or getattr(ctx.find_root().obj, "output", None)
    if asked is Format.SCHEMA and hasattr(ctx.command, "show_schema") and not ctx.resilient_parsing:
        ctx.command.show_schema(ctx)
    return value


Output = Annotated[Format | None, _common("-o --output FORMAT", _FORMATS, is_eager=True, callback=_with_schema)]
OutputLong = Annotated[Format | None, _common("--output FORMAT", _FORMATS, is_eager=True, callback=_with_schema)]

OUTPUT = ("output", "no_header", "quiet", "verbose")
"""Of every command."""
CONNECTION = ("bootstrap_server", "zookeeper", "profile", "client_config", "connect_by", "timeout", "trace")
"""Of those that talk to a cluster."""


@dataclass(frozen=True, slots=True)
class CommonFlags:
    """The flags that commands share, each written once, with their values."""

    output: Output = None
    no_header: Annotated[bool, _common("--no-header", "Leave out the header line of tables and TSV.")] = False
    quiet: Annotated[bool, _common("-q --quiet", "Print only errors on stderr.")] = False
    verbose: Annotated[bool, _common("-v --verbose", "Show the cluster's address and where it came from.")] = False
    yes: Annotated[bool, _common("-y --yes", "Do not ask for confirmation.")] = False
    confirm: Annotated[str | None, _common("--confirm NAME", "Name of the profile, for --yes on a protected one.")] = (
        None
    )
    dry_run: Annotated[bool, _common("--dry-run", "Show what would be done without doing it.")] = False
    bootstrap_server: BootstrapServer = None
    zookeeper: ZooKeeperFlag = None
    profile: Annotated[
        str | None, _common("--profile NAME", "The cluster, by the name of a profile.", parser=named)
    ] = None
    client_config: ClientConfig = None
    connect_by: Annotated[
        list[str] | None,
        _common(
            "-X --property NAME=VALUE",
            "A setting of the connection, under Kafka's name: security.protocol, sasl.*, ssl.*.",
        ),
    ] = None
    """A command with a ``-X`` for more has that in place of this one."""
    timeout: Timeout = None
    trace: Annotated[bool, _common("--trace", "Show each request and znode access with its time in ms.")] = False


@dataclass(frozen=True, slots=True)
class GlobalFlags(CommonFlags):
    """The values of these flags for one command, and what it runs in.

    Also what stands before the noun (``klog -B h:9092 topic list``) and what the shell was started with: then it is the
    default for what the command itself leaves out.
    """

    address_source: str | None = None
    """Who gave the addresses, where no flag did."""
    session: Session | None = None
    """Connections of the shell that the command runs in."""
    screen: Screen | None = None
    """The shell's screen: pages, and tables that do not fit."""
    live: Callable[[str, str], Sequence[str]] | None = None
    """The names that the shell knows, for completion: by what they are of (``topics``), and what of (``numbers`` of a
    topic)."""

    def over(self, outer: GlobalFlags) -> GlobalFlags:
        """These flags, and the outer ones where these say nothing."""
        merged = {one.name: getattr(self, one.name) or getattr(outer, one.name) for one in fields(self)}
        merged.update(connect_by=[*(outer.connect_by or ()), *(self.connect_by or ())] or None)
        if self.bootstrap_server or self.zookeeper or self.profile:
            # Which cluster is one choice: half an address from each place would be two clusters.
            merged.update(bootstrap_server=self.bootstrap_server, zookeeper=self.zookeeper, profile=self.profile)
            merged.update(address_source=self.address_source)
        return GlobalFlags(**merged)


@cache
def parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a command's function, or the `CommonFlags`, as keywords with their annotations resolved."""
    found = inspect.signature(function, eval_str=True).parameters
    return {name: one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, one in found.items()}
