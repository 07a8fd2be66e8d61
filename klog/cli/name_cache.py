"""What completes by itself: names of topics, partitions, groups, brokers, acts and znodes, from a small cache; and what
is fixed.

Completion must not hurt: it asks no broker, prints nothing and offers nothing where it does not know. The names are
those that the last ``klog topic list`` (also ``--deleted``), ``klog group list``, ``klog broker list``,
``klog events``, ``klog undo``, ``klog zk ls`` or shell saw of the same cluster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from klog.cli.target import Target, TargetFlags, klog_home, profiles_here, resolve
from klog.cli.traits import command_name
from klog.errors import KlogError
from klog.event_kinds import EVENT_KINDS

CACHED_NAMES_MAX = 10_000
"""Longer lists do not help anyone who completes a name."""
ACTS_KEPT = 100
"""More are too many to choose from."""
POSITIONS = ("start", "end", "@-1h", "@-1d", "+10", "-10")
QUOTAS = (
    *("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
    "connection_creation_rate",
)
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


SUBJECTS = {
    "topic": "topics",
    "partition": "partitions",
    "group": "groups",
    "broker": "brokers",
    "message": "partitions",
    "denied": "",
    "throttled": "",
    **dict.fromkeys(("topics", "groups", "brokers", "zookeeper"), ""),
}
"""What ``klog status`` takes first, and the names that follow."""


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


def topics_and_partitions(ctx: typer.Context, incomplete: str) -> list[str]:
    """The known topics, and ``T-P`` of each of their partitions."""
    return [*_names(ctx, "topics", incomplete), *_names(ctx, "partitions", incomplete)]


def deleted_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topics that are known to be deleted, and can be restored."""
    return _names(ctx, "trash", incomplete)


def subjects(ctx: typer.Context, incomplete: str) -> list[str]:
    """What ``klog status`` can explain: the kind first, or the name alone."""
    before = ctx.params.get("subject") or []
    if len(before) == 1:
        return _names(ctx, SUBJECTS.get(before[0], ""), incomplete)
    if before:
        return []
    names = [name for kind in ("topics", "groups", "brokers", "partitions") for name in _names(ctx, kind, incomplete)]
    return list(dict.fromkeys((*(word for word in SUBJECTS if word.startswith(incomplete)), *names)))


def event_kinds(incomplete: str) -> list[str]:
    """Kinds of event."""
    return [kind for kind in EVENT_KINDS if kind.startswith(incomplete)]


def act_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The known acts, the newest first, each with what it did."""
    known = (name.partition("\t") for name in reversed(_names(ctx, "acts", incomplete)))
    return [(act, what) for act, _, what in known]


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


def quota_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """With the sign behind them where a value follows."""
    sign = "=" if ctx.info_name == "set" else ""
    return [f"{name}{sign}" for name in QUOTAS if name.startswith(incomplete)]


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


BY_FLAG: Mapping[str, Callable[..., Sequence[Any]]] = {"profile": profile_names}
"""By the name of a parameter that all commands have."""
COMPLETERS: Mapping[str, Callable[..., Sequence[Any]]] = {
    **dict.fromkeys(("ID", "ID,..."), broker_ids),
    "ACT": act_ids,
    "PATH": znode_paths,
    "NAME=VALUE": setting_names,
    **dict.fromkeys(("POSITION", "POS"), positions),
}
"""By the name of a value in usage lines, where a parameter has none of its own."""


def _names(ctx: typer.Context, kind: str, incomplete: str) -> list[str]:
    try:
        flags = TargetFlags(*(_given(ctx, name) for name in ("bootstrap_server", "zookeeper", "profile")))
        target = resolve(flags, os.environ, klog_home())
        names = json.loads(_cache_file(target, kind).read_text("utf-8"))
        return [name for name in names if isinstance(name, str) and name.startswith(incomplete)]
    except Exception:
        return []  # whatever it is, the person who typed <Tab> does not want to read about it


def _given(ctx: typer.Context, name: str) -> str | None:
    """A flag's value: behind the command, or else before its noun."""
    value: str | None = ctx.params.get(name)
    return value if value is not None else ctx.find_root().params.get(name)


def remember_topics(target: Target, partitions: Mapping[str, int]) -> None:
    """Keep the names, each with its number of partitions, for the next completion; a home that cannot be written is not
    an error."""
    _remember(target, "topics", partitions)
    names = (f"{topic}-{number}" for topic, count in partitions.items() for number in range(count))
    _remember(target, "partitions", islice(names, CACHED_NAMES_MAX))


def remember_trash(target: Target, names: Iterable[str]) -> None:
    """As `remember_topics`, of deleted ones."""
    _remember(target, "trash", names)


def remember_deleted(target: Target, names: Iterable[str]) -> None:
    """Topics that have been deleted just now; others are still known."""
    _remember(target, "trash", {*_remembered(target, "trash"), *names})


def remember_groups(target: Target, names: Iterable[str]) -> None:
    """As `remember_topics`, of groups."""
    _remember(target, "groups", names)


def remember_brokers(target: Target, ids: Iterable[int]) -> None:
    """As `remember_topics`, of brokers."""
    _remember(target, "brokers", map(str, ids))


def remember_acts(target: Target, acts: Mapping[str, str]) -> None:
    """As `remember_topics`, of acts, id -> what it did: their ids sort by time."""
    _remember(target, "acts", [f"{act}\t{acts[act]}" for act in sorted(acts)[-ACTS_KEPT:]])


def remember_znodes(target: Target, paths: Iterable[str]) -> None:
    """As `remember_topics`, of znodes; what was known stays."""
    _remember(target, "znodes", {*_remembered(target, "znodes"), *paths})


def _remembered(target: Target, kind: str) -> list[str]:
    try:
        known = json.loads(_cache_file(target, kind).read_text("utf-8"))
    except (OSError, ValueError):
        known = []
    return [one for one in known if isinstance(one, str)] if isinstance(known, list) else []


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
