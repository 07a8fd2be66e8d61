"""The values of the flags that every command has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from klog.render import Format

if TYPE_CHECKING:
    from pathlib import Path

    from klog.admin.shell.screen import Screen
    from klog.cli.session import Session


@dataclass(frozen=True, slots=True)
class SharedFlags:
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
    address_source: str | None = None
    """Who gave the addresses, where no flag did."""
    session: Session | None = None
    """Connections of the shell that the command runs in."""
    screen: Screen | None = None
    """The shell's screen: pages, and tables that do not fit."""

    def over(self, outer: SharedFlags) -> SharedFlags:
        """These flags, and the outer ones where these say nothing."""
        merged = {name: getattr(self, name) or getattr(outer, name) for name in SharedFlags.__slots__}
        if self.bootstrap_server or self.zookeeper or self.profile:
            # Which cluster is one choice: half an address from each place would be two clusters.
            merged.update(bootstrap_server=self.bootstrap_server, zookeeper=self.zookeeper, profile=self.profile)
            merged.update(address_source=self.address_source)
        return SharedFlags(**merged)
