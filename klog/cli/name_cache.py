"""What completes by itself: names of topics, groups, brokers, acts and znodes, from a small cache; and what is fixed.

Completion must not hurt: it asks no broker, prints nothing and offers nothing where it does not know. The names are
those that the last ``klog topic list``, ``klog group list``, ``klog broker list``, ``klog acts list``, ``klog zk ls``
or shell saw of the same cluster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import typer

from klog.cli.target import Target, TargetFlags, klog_home, profiles_here, resolve
from klog.cli.traits import command_name
from klog.errors import KlogError

CACHED_NAMES_MAX = 10_000
"""Longer lists do not help anyone who completes a name."""
ACTS_KEPT = 100
"""More are too many to choose from."""
POSITIONS = ("start", "end", "@-1h", "@-1d", "+10", "-10")
ZNODES = (
    *(
        "/admin",
        "/brokers",
        "/brokers/ids",
        "/brokers/topics",
        "/config",
        "/config/topics",
        "/consumers",
        "/controller",
    ),
    *("/controller_epoch", "/klog"),
)


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The known topics that begin so."""
    return _names(ctx, "topics", incomplete)


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The known groups that begin so."""
    return _names(ctx, "groups", incomplete)


def broker_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """The known brokers, by id; in a list, the one behind the last comma."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{one}" for one in _names(ctx, "brokers", last)]


def act_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """The known acts, the newest first."""
    return _names(ctx, "acts", incomplete)[::-1]


def znode_paths(ctx: typer.Context, incomplete: str) -> list[str]:
    """The known znodes one level below what is typed, and those that every cluster has."""
    if not command_name(ctx).startswith("zk."):
        return []
    known = {*_names(ctx, "znodes", incomplete), *(one for one in ZNODES if one.startswith(incomplete))}
    depth = incomplete.count("/")
    return sorted(one for one in known if one.count("/") <= max(depth, 1))


def setting_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Settings of a topic or a broker, ready for the value."""
    noun = command_name(ctx).partition(".")[0]
    if noun == "topic":
        from klog.config.topic import TOPIC_SETTINGS

        names: Iterable[str] = TOPIC_SETTINGS
    elif noun in ("broker", "up"):
        from klog.config.broker import BROKER_SETTINGS

        names = BROKER_SETTINGS
    else:
        return []
    return [f"{name}=" for name in names if name.startswith(incomplete)]


def positions(incomplete: str) -> list[str]:
    """Places in a log."""
    return [one for one in POSITIONS if one.startswith(incomplete)]


def profile_names(incomplete: str) -> list[str]:
    """The profiles that begin so."""
    try:
        known = profiles_here(klog_home(), Path.cwd())
    except (KlogError, OSError):
        return []
    return [] if known is None else sorted(name for name in known.by_name if name.startswith(incomplete))


BY_FLAG: Mapping[str, Callable[..., list[str]]] = {"profile": profile_names}
"""By the name of a parameter that all commands have."""
COMPLETERS: Mapping[str, Callable[..., list[str]]] = {
    **dict.fromkeys(("ID", "ID,..."), broker_ids),
    "ACT": act_ids,
    "PATH": znode_paths,
    "NAME=VALUE": setting_names,
    **dict.fromkeys(("POSITION", "POS"), positions),
}
"""By the name of a value in usage lines, where a parameter has none of its own."""


def _names(ctx: typer.Context, kind: str, incomplete: str) -> list[str]:
    try:
        flags = TargetFlags(*(ctx.params.get(name) for name in ("bootstrap_server", "zookeeper", "profile")))
        target = resolve(flags, os.environ, klog_home())
        names = json.loads(_cache_file(target, kind).read_text("utf-8"))
        return [name for name in names if isinstance(name, str) and name.startswith(incomplete)]
    except Exception:
        return []  # whatever it is, the person who typed <Tab> does not want to read about it


def remember_topics(target: Target, names: Iterable[str]) -> None:
    """Keep the names for the next completion; a home that cannot be written is not an error."""
    _remember(target, "topics", names)


def remember_groups(target: Target, names: Iterable[str]) -> None:
    """As `remember_topics`, of groups."""
    _remember(target, "groups", names)


def remember_brokers(target: Target, ids: Iterable[int]) -> None:
    """As `remember_topics`, of brokers."""
    _remember(target, "brokers", map(str, ids))


def remember_acts(target: Target, act_ids: Iterable[str]) -> None:
    """As `remember_topics`, of acts: their ids sort by time."""
    _remember(target, "acts", sorted(act_ids)[-ACTS_KEPT:])


def remember_znodes(target: Target, paths: Iterable[str]) -> None:
    """As `remember_topics`, of znodes; what was known stays."""
    try:
        known = json.loads(_cache_file(target, "znodes").read_text("utf-8"))
    except (OSError, ValueError):
        known = []
    before = [one for one in known if isinstance(one, str)] if isinstance(known, list) else []
    _remember(target, "znodes", {*before, *paths})


def _remember(target: Target, kind: str, names: Iterable[str]) -> None:
    path = _cache_file(target, kind)
    text = json.dumps(sorted(names)[:CACHED_NAMES_MAX])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(text, "utf-8")
        unfinished.replace(path)
    except OSError:
        pass


def _cache_file(target: Target, kind: str) -> Path:
    import hashlib  # with what it loads 8 ms, for every command that names a topic

    address = target.bootstrap or target.zookeeper or ""
    return klog_home() / "cache" / f"{kind}-{hashlib.sha256(address.encode()).hexdigest()[:16]}.json"
