"""Which cluster a command talks to, and who said so.

The sources, highest first: flags (``-B``, ``-z``, ``--profile``); ``KLOG_BOOTSTRAP_SERVER`` and ``KLOG_ZOOKEEPER``;
``KLOG_PROFILE``; the local cluster that ``klog up`` runs. Both addresses come from one source. The one that it does not
give is looked up through the other, never taken from a lower source: half an address from here and half from there
would be two clusters.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klog.errors import KlogError, NoSuchThing, Refused, UsageError

SERVER_VARIABLE = "KLOG_BOOTSTRAP_SERVER"
ZOOKEEPER_VARIABLE = "KLOG_ZOOKEEPER"
PROFILE_VARIABLE = "KLOG_PROFILE"
PROFILES_FILE = "profiles.toml"
PROFILE_KEYS = frozenset({"bootstrap_server", "zookeeper", "cluster_id"})


class NoCluster(KlogError):
    """Nothing says which cluster is meant."""

    code = "NO_CLUSTER"


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

    def __str__(self) -> str:
        parts = [self.bootstrap or "", f"zookeeper {self.zookeeper}" if self.zookeeper else ""]
        return f"{', '.join(part for part in parts if part)} (from {self.source})"


@dataclass(frozen=True, slots=True)
class TargetFlags:
    """What the command line says about it."""

    bootstrap: str | None = None
    zookeeper: str | None = None
    profile: str | None = None


def klog_home() -> Path:
    """``KLOG_HOME``, or ``~/.klog``."""
    return Path(os.environ.get("KLOG_HOME") or Path.home() / ".klog")


def resolve(flags: TargetFlags, environment: Mapping[str, str], home: Path) -> Target:
    """The cluster that is meant; NoCluster where nothing says so, Refused where several local ones run."""
    if flags.profile and (flags.bootstrap or flags.zookeeper):
        raise UsageError("--profile excludes -B and -z", hint="give either the profile or addresses")
    if flags.bootstrap or flags.zookeeper:
        words = " and ".join(word for word, given in (("-B", flags.bootstrap), ("-z", flags.zookeeper)) if given)
        return Target(flags.bootstrap, flags.zookeeper, f"flag {words}")
    if flags.profile:
        return _profile(flags.profile, "flag --profile", home)
    bootstrap, zookeeper = environment.get(SERVER_VARIABLE), environment.get(ZOOKEEPER_VARIABLE)
    if bootstrap or zookeeper:
        given = ((SERVER_VARIABLE, bootstrap), (ZOOKEEPER_VARIABLE, zookeeper))
        return Target(bootstrap or None, zookeeper or None, " and ".join(name for name, value in given if value))
    if environment.get(PROFILE_VARIABLE):
        return _profile(environment[PROFILE_VARIABLE], PROFILE_VARIABLE, home)
    return _local(home)


def _profile(name: str, said_by: str, home: Path) -> Target:
    import tomllib  # only who has profiles pays for it

    path = home / PROFILES_FILE
    try:
        profiles: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise NoSuchThing(
            f"profile {name!r} ({said_by}): {path} does not exist",
            hint=f'create it, with a section [{name}] that has bootstrap_server = "host:9092"',
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None
    profile = profiles.get(name)
    if not isinstance(profile, dict):
        known = ", ".join(sorted(key for key, value in profiles.items() if isinstance(value, dict))) or "none"
        raise NoSuchThing(f"{path} has no profile {name!r} ({said_by})", hint=f"its profiles: {known}")
    source = f"profile {name} in {path}, by {said_by}"
    for key in ("bootstrap_server", "zookeeper", "cluster_id"):
        if not isinstance(profile.get(key, ""), str):
            raise UsageError(f"{path}: [{name}] {key} must be a string, got {profile[key]!r}")
    target = Target(
        profile.get("bootstrap_server") or None, profile.get("zookeeper") or None, source, profile.get("cluster_id")
    )
    if target.bootstrap is None and target.zookeeper is None:
        raise UsageError(f"{path}: [{name}] has neither bootstrap_server nor zookeeper")
    return target


def _local(home: Path) -> Target:
    from klog.admin.local_state import running_clusters

    running = running_clusters(home)
    if not running:
        raise NoCluster(
            f"no cluster given, and no local cluster is running (none in {home / 'running'})",
            hint=f"start one with `klog up`, or give one: -B HOST:PORT, -z, --profile, {SERVER_VARIABLE}",
        )
    if len(running) > 1:
        listed = "; ".join(f"{cluster.bootstrap} in {cluster.directory}" for cluster in running)
        raise Refused(f"{len(running)} local clusters are running: {listed}", hint="choose one: -B HOST:PORT")
    cluster = running[0]
    source = f"the local cluster in {cluster.directory}"
    return Target(cluster.bootstrap, cluster.zookeeper, source, cluster.cluster_id, cluster.directory)
