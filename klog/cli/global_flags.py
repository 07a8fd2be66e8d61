"""The values of the global flags, which every command has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from klog.render import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from klog.cli.screen import Screen
    from klog.cli.session import Session


@dataclass(frozen=True, slots=True)
class GlobalFlags:
    """The values of the flags of every command. Also what stands before the noun (``klog -B h:9092 topic list``) and
    what the shell was started with: then it is the default for what the command itself leaves out."""

    output: Format | None = None
    no_header: bool = False
    quiet: bool = False
    verbose: bool = False
    bootstrap_server: str | None = None
    zookeeper: str | None = None
    profile: str | None = None
    timeout: float | None = None
    trace: bool = False
    yes: bool = False
    confirm: str | None = None
    dry_run: bool = False
    client_config: Path | None = None
    connect_by: list[str] | None = None
    """NAME=VALUE of each ``-X``."""
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
        merged = {name: getattr(self, name) or getattr(outer, name) for name in GlobalFlags.__slots__}
        merged.update(connect_by=[*(outer.connect_by or ()), *(self.connect_by or ())] or None)
        if self.bootstrap_server or self.zookeeper or self.profile:
            # Which cluster is one choice: half an address from each place would be two clusters.
            merged.update(bootstrap_server=self.bootstrap_server, zookeeper=self.zookeeper, profile=self.profile)
            merged.update(address_source=self.address_source)
        return GlobalFlags(**merged)
