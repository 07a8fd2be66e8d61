"""The flags that commands share, each written once.

They are declared as the parameters of functions that are never called: ``klog.cli.command`` adds the parameters of the
groups that a command asks for to the command's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from klog.errors import UsageError
from klog.render import Format

GLOBAL_PANEL = "Flags of every command"
"""``rich_help_panel`` of these flags: help lists them apart from the command's own."""

DEFAULT_TIMEOUT_S = 10.0


def duration(word: str) -> float:
    """``500ms``, ``10s``, ``2h`` in seconds."""
    from klog.ops.units import parse_duration_ms

    return parse_duration_ms(word) / 1000


def limit(word: str) -> float:
    """A duration that leaves any time at all, in seconds."""
    seconds = duration(word)
    if seconds <= 0:
        raise UsageError(f"{word!r} leaves no time to answer")
    return seconds


BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "-B",
        "--bootstrap-server",
        "--bootstrap-servers",
        "--broker-list",
        metavar="HOST:PORT,...",
        help="The cluster, by one or more of its brokers.",
        rich_help_panel=GLOBAL_PANEL,
    ),
]
ZooKeeperFlag = Annotated[
    str | None,
    typer.Option(
        "-z",
        "--zookeeper",
        metavar="HOST:PORT,.../CHROOT",
        help="The cluster, by its ZooKeeper.",
        rich_help_panel=GLOBAL_PANEL,
    ),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="The cluster, by a profile's name.", rich_help_panel=GLOBAL_PANEL),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="DURATION",
        parser=limit,
        help="How long to wait for each answer (10s).",
        rich_help_panel=GLOBAL_PANEL,
    ),
]
Trace = Annotated[
    bool,
    typer.Option(
        "--trace", help="Show every request and znode touched, with milliseconds.", rich_help_panel=GLOBAL_PANEL
    ),
]
Output = Annotated[
    Format | None,
    typer.Option(
        "-o", "--output", metavar="FORMAT", help="table, wide, json, jsonl, yaml or tsv.", rich_help_panel=GLOBAL_PANEL
    ),
]
OutputLong = Annotated[
    Format | None,
    typer.Option(
        "--output", metavar="FORMAT", help="table, wide, json, jsonl, yaml or tsv.", rich_help_panel=GLOBAL_PANEL
    ),
]
NoHeader = Annotated[
    bool, typer.Option("--no-header", help="Tables and TSV without their first line.", rich_help_panel=GLOBAL_PANEL)
]
Quiet = Annotated[
    bool, typer.Option("-q", "--quiet", help="Nothing on stderr but errors.", rich_help_panel=GLOBAL_PANEL)
]
Verbose = Annotated[
    bool,
    typer.Option("-v", "--verbose", help="Say which cluster is used and from where.", rich_help_panel=GLOBAL_PANEL),
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do it without asking.", rich_help_panel=GLOBAL_PANEL)]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.", rich_help_panel=GLOBAL_PANEL)
]


def connection(
    bootstrap_server: BootstrapServer = None,
    zookeeper: ZooKeeperFlag = None,
    profile: Profile = None,
    timeout: Timeout = None,
    trace: Trace = False,
) -> None:
    """The flags of commands that talk to a cluster."""


def output(output: Output = None, no_header: NoHeader = False, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """The flags of every command."""


def output_long(
    output: OutputLong = None, no_header: NoHeader = False, quiet: Quiet = False, verbose: Verbose = False
) -> None:
    """The same for the one command whose ``-o`` is an offset, ``tail``."""


def question(yes: Yes = False, dry_run: DryRun = False) -> None:
    """The flags of commands that ask first."""


def parameters(group: Callable[..., Any]) -> list[inspect.Parameter]:
    """The flags of one of the groups above, as keyword parameters with their annotations resolved."""
    found = inspect.signature(group, eval_str=True).parameters.values()
    return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in found]
