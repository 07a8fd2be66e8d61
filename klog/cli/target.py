"""Which cluster a command talks to, and who said so.

The sources, highest first: flags (``-B``, ``-z``, ``--profile``); ``KLOG_BOOTSTRAP_SERVER`` and ``KLOG_ZOOKEEPER``;
``KLOG_PROFILE``; ``current`` in the project's ``.klog.toml``, then in ``profiles.toml`` (``klog.admin.profiles``); the
local cluster that ``klog up`` runs. Both addresses come from one source. The one that it does not
give is looked up through the other, never taken from a lower source: half an address from here and half from there
would be two clusters.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from klog.cli.flags import GlobalFlags
from klog.errors import KlogError, UsageError
from klog.security.client_security import OPEN, PROTOCOL, ClientSecurity

if TYPE_CHECKING:
    from klog.admin.profiles import Profile, Profiles
    from klog.client.client_config import ClientConfig

SERVER_VARIABLE = "KLOG_BOOTSTRAP_SERVER"
ZOOKEEPER_VARIABLE = "KLOG_ZOOKEEPER"
PROFILE_VARIABLE = "KLOG_PROFILE"
HOME_FILE = "profiles.toml"
PROJECT_FILE = ".klog.toml"
PROFILE_SIGN = "@"
OTHER_CLUSTER = "HOST:PORT,...|@PROFILE"
"""What a flag for a second cluster takes: addresses, or a profile as ``@NAME``."""


class NoCluster(KlogError, code="NO_CLUSTER"):
    """Nothing says which cluster is meant."""


@dataclass(frozen=True, slots=True)
class Target:
    """The addresses of a cluster, at least one of them, and the ``source`` that gave them, in words.

    ``cluster_id`` is what the source expects to find there, where it says so; ``directory`` is a local cluster's.
    """

    bootstrap: str | None
    zookeeper: str | None
    source: str
    cluster_id: str | None = None
    directory: Path | None = None
    profile: Profile | None = None
    security: ClientSecurity = OPEN
    client_config: Path | None = None
    """A file of client properties that say how to connect; the profile's, or that of a secured local cluster."""

    @property
    def name(self) -> str:
        """The cluster in a word, for prompts."""
        if self.profile is not None:
            return self.profile.name
        return "local" if self.directory is not None else (self.bootstrap or self.zookeeper or "").split(",")[0]

    @property
    def title(self) -> str:
        """The cluster in few words, for questions: the profile's name, or an address and who gave it."""
        if self.profile is not None:
            return self.profile.name
        first, *more = (self.bootstrap or self.zookeeper or "").split(",")
        others = f" and {len(more)} more" if more else ""
        return f"{first}{others} (from {self.source})"

    def __str__(self) -> str:
        parts = [self.bootstrap or "", f"zookeeper {self.zookeeper}" if self.zookeeper else ""]
        return f"{', '.join(part for part in parts if part)} (from {self.source})"


def secured(target: Target, given: ClientConfig | None = None, more: Mapping[str, str] | None = None) -> Target:
    """The target whose servers know how to connect to them: by ``given``, else by the target's own file, with ``more``
    settings before those of the file; else by ``more`` alone.

    It may run a command that prints a password. Raises as `read_client_config`.
    """
    told = None
    if target.client_config is not None and (given is None or given.security is None or given.access is None):
        from klog.client.client_config import SecretCommands, read_client_config

        commands = SecretCommands() if target.profile is None else target.profile.secrets
        told = read_client_config(target.client_config, commands, more)
    configs = [one for one in (given, told) if one is not None]
    security = next((one.security for one in configs if one.security is not None), None)
    access = next((one.access for one in configs if one.access is not None), None)
    if security is None and more:
        from klog.client.security_files import read_security

        if PROTOCOL not in more:
            raise UsageError(f"-X {next(iter(more))}: {PROTOCOL} is missing", hint=f"-X {PROTOCOL}=SASL_SSL")
        security = read_security(more, "-X")
    if security is None and access is None:
        return target
    from klog.client.servers import Servers
    from klog.coordination.zookeeper_access import OPEN_ACCESS, ZooKeeperServers

    security, access = security or OPEN, access or OPEN_ACCESS
    bootstrap = None if target.bootstrap is None else Servers(target.bootstrap, security, access)
    zookeeper = None if target.zookeeper is None else ZooKeeperServers(target.zookeeper, access)
    return replace(target, bootstrap=bootstrap, zookeeper=zookeeper, security=security)


def klog_home() -> Path:
    """``KLOG_HOME``, or ``~/.klog``."""
    return Path(os.environ.get("KLOG_HOME") or Path.home() / ".klog")


def resolve(
    flags: GlobalFlags,
    environment: Mapping[str, str] = os.environ,
    home: Path | None = None,
    folder: Path | None = None,
) -> Target:
    """The cluster that is meant in a folder, the working one if not given.

    NoCluster where nothing says so, Refused where several local ones run.
    """
    home, folder = home or klog_home(), folder or Path.cwd()
    if flags.profile and (flags.bootstrap_server or flags.zookeeper):
        raise UsageError("--profile excludes -B and -z", hint="give either the profile or addresses")
    if flags.bootstrap_server or flags.zookeeper:
        words = " and ".join(word for word, given in (("-B", flags.bootstrap_server), ("-z", flags.zookeeper)) if given)
        return Target(flags.bootstrap_server, flags.zookeeper, flags.address_source or f"flag {words}")
    if flags.profile:
        return _named(flags.profile, "flag --profile", home, folder)
    bootstrap, zookeeper = environment.get(SERVER_VARIABLE), environment.get(ZOOKEEPER_VARIABLE)
    if bootstrap or zookeeper:
        given = ((SERVER_VARIABLE, bootstrap), (ZOOKEEPER_VARIABLE, zookeeper))
        return Target(bootstrap or None, zookeeper or None, " and ".join(name for name, value in given if value))
    if environment.get(PROFILE_VARIABLE):
        return _named(environment[PROFILE_VARIABLE], PROFILE_VARIABLE, home, folder)
    return _current(home, folder) or _local(home)


def profiles_here(home: Path, folder: Path) -> Profiles | None:
    """The profiles that hold in a folder; None where there are no files of them."""
    if not (home / HOME_FILE).exists() and not any((one / PROJECT_FILE).exists() for one in (folder, *folder.parents)):
        return None
    from klog.admin import profiles  # only who has profiles pays for it

    return profiles.load(home, folder)


def profile_of_addresses(*addresses: str | None) -> Profile | None:
    """The profile that has one of these servers: what protects a cluster holds however the cluster is addressed."""
    profiles = profiles_here(klog_home(), Path.cwd())
    return None if profiles is None else profiles.of_addresses(*addresses)


def profile_of_other(given: str) -> Profile | None:
    """The profile that protects a second cluster: the one that is named, or that has one of its addresses."""
    if not given.startswith(PROFILE_SIGN):
        return profile_of_addresses(given)
    profiles = profiles_here(klog_home(), Path.cwd())
    return None if profiles is None else profiles.by_name.get(given.removeprefix(PROFILE_SIGN))


def _named(name: str, named_by: str, home: Path, folder: Path) -> Target:
    from klog.admin import profiles

    return _of_profile(profiles.load(home, folder).named(name, named_by), named_by)


def _current(home: Path, folder: Path) -> Target | None:
    found = profiles_here(home, folder)
    if found is None or found.current is None:
        return None
    named_by = f"current in {found.current_file}"
    return _of_profile(found.named(found.current, named_by), named_by)


def _of_profile(profile: Profile, named_by: str) -> Target:
    source = f"profile {profile.name}, {named_by}"
    config = profile.file.parent / Path(profile.client_config).expanduser() if profile.client_config else None
    return Target(
        profile.bootstrap, profile.zookeeper, source, profile.cluster_id, profile=profile, client_config=config
    )


def _local(home: Path) -> Target:
    from klog.admin.local_state import the_running_cluster

    cluster = the_running_cluster(home, "choose one: -B HOST:PORT")
    if cluster is None:
        raise NoCluster(
            f"no cluster given, and no local cluster is running (none in {home / 'running'})",
            hint=f"start one with `klog up`, or give one: -B HOST:PORT, -z, --profile, {SERVER_VARIABLE}",
        )
    source = f"the local cluster in {cluster.directory}"
    return Target(
        cluster.bootstrap,
        cluster.zookeeper,
        source,
        cluster.cluster_id,
        cluster.directory,
        client_config=cluster.client_config,
    )
