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

from klog.cli.flags import GlobalFlags
from klog.cli.target import Target, klog_home, profiles_here, resolve
from klog.cli.traits import command_name
from klog.event_kinds import EVENT_KINDS

CACHED_NAMES_MAX = 10_000
"""Longer lists do not help anyone who completes a name."""
ACTS_KEPT = 100
"""More are too many to choose from."""
POSITIONS = ("start", "end", "@-10m", "@-1h", "@-1d", "+10", "-10")
RANGES = ("start:", "@-10m:", "@-1h:", "@-1d:", ":end", "-10:")
DURATIONS = ("1s", "5s", "10s", "1m", "10m", "1h")
ZNODES = (
    *("/admin", "/brokers", "/brokers/ids", "/brokers/topics", "/config", "/config/topics", "/consumers"),
    *("/controller", "/controller_epoch", "/klog"),
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


Completer = Callable[[typer.Context, str], list[str]]


def _in_a_list(kind: str) -> Completer:
    """The known names of a kind that begin so; in a list, the one behind the last comma."""

    def offered(ctx: typer.Context, incomplete: str) -> list[str]:
        return _last_of(incomplete, _names(ctx, kind))

    return offered


def _of(*kinds: str) -> Completer:
    """The known names of some kinds that begin so."""

    def offered(ctx: typer.Context, incomplete: str) -> list[str]:
        return _beginning(incomplete, [name for kind in kinds for name in _names(ctx, kind)])

    return offered


profile_names = _of("profiles")
deleted_topics = _of("trash")


def partition_numbers(ctx: typer.Context, incomplete: str) -> list[str]:
    """The partitions of the first topic that the command names."""
    named = next((one.name for one in ctx.command.params if one.metavar == "TOPIC"), None)
    topics = ctx.params.get(named or "") or ()
    topic = topics if isinstance(topics, str) else next(iter(topics), "")
    return _last_of(incomplete, _names(ctx, "numbers", topic) if topic else ())


def subjects(ctx: typer.Context, incomplete: str) -> list[str]:
    """What ``klog status`` can explain: the kind first, or the name alone."""
    before = ctx.params.get("subject") or []
    if before:
        kind = SUBJECTS.get(before[0]) if len(before) == 1 else None
        return _beginning(incomplete, _names(ctx, kind) if kind else ())
    names = _of("topics", "groups", "brokers", "partitions")(ctx, incomplete)
    return list(dict.fromkeys([*_beginning(incomplete, SUBJECTS), *names]))


def act_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The known acts, the newest first, each with what it did."""
    known = (name.partition("\t") for name in _beginning(incomplete, sorted(_names(ctx, "acts"), reverse=True)))
    return [(act, what) for act, _, what in known]


def znode_paths(ctx: typer.Context, incomplete: str) -> list[str]:
    """The known znodes one level below what is typed, and those that every cluster has."""
    if not command_name(ctx).startswith("zk."):
        return []
    folder = incomplete.rpartition("/")[0]
    known = {f"{folder}/{name}" for name in _names(ctx, "znodes", folder or "/")} or set(ZNODES)
    depth = incomplete.count("/")
    return sorted(one for one in _beginning(incomplete, known) if one.count("/") <= max(depth, 1))


def setting_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Settings of a topic or a broker, ready for the value; and values that are worth offering."""
    from klog.config.broker import BROKER_SETTINGS, default_text
    from klog.config.topic import TOPIC_SETTINGS

    noun = command_name(ctx).partition(".")[0]
    known: Mapping[str, str] = TOPIC_SETTINGS if noun == "topic" else {}
    if noun in ("broker", "up"):
        known = {name: name for name in BROKER_SETTINGS}
    name, sign, _ = incomplete.partition("=")
    if not sign:
        return _beginning(incomplete, [f"{one}=" for one in known])
    setting = BROKER_SETTINGS.get(known.get(name, ""))
    if setting is None:
        return []
    values = [default_text(setting.name) or ""]
    if setting.kind == "bool":
        values = ["true", "false"]
    elif setting.check is not None and setting.check.expected.startswith("out of "):
        values = setting.check.expected.removeprefix("out of ").split(", ")
    return _beginning(incomplete, [f"{name}={value}" for value in values if value])


def quota_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """With the sign behind them where a value follows."""
    from klog.security.quotas import QuotaKey

    sign = "=" if ctx.info_name == "set" else ""
    return _beginning(incomplete, [f"{key}{sign}" for key in QuotaKey])


def one_of(words: Iterable[str]) -> Callable[[str], list[str]]:
    """What completes a value that is often one of these."""
    return lambda incomplete: _beginning(incomplete, words)


BY_FLAG: Mapping[str, Callable[..., Sequence[Any]]] = {"profile": profile_names}
"""By the name of a parameter that all commands have."""
COMPLETERS: Mapping[str, Callable[..., Sequence[Any]]] = {
    **dict.fromkeys(("TOPIC", "TOPIC,..."), _in_a_list("topics")),
    "TOPIC|TOPIC-P": _of("topics", "partitions"),
    "GROUP": _in_a_list("groups"),
    **dict.fromkeys(("ID", "ID,..."), _in_a_list("brokers")),
    "ACT": act_ids,
    "KIND": one_of(EVENT_KINDS),
    **dict.fromkeys(("QUOTA", "QUOTA=VALUE"), quota_names),
    "PATH": znode_paths,
    "NAME=VALUE": setting_names,
    "0,2,5-8": partition_numbers,
    **dict.fromkeys(("SUBJECT", "ID|SUBJECT"), _of("schemas")),
    **dict.fromkeys(("POSITION", "POS"), one_of(POSITIONS)),
    "RANGE": one_of(RANGES),
    "DURATION": one_of(DURATIONS),
}
"""By the name of a value in usage lines, where a parameter has none of its own."""


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _last_of(incomplete: str, names: Iterable[str]) -> list[str]:
    """As `_beginning`, of what stands behind the last comma."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _beginning(last, names)]


def _names(ctx: typer.Context, kind: str, about: str = "") -> Sequence[str]:
    """The names of a kind: in the shell those that there are now, else those of the cache."""
    try:
        live = getattr(ctx.find_root().obj, "live", None)
        if live is not None:
            found: Sequence[str] = live(kind, about)
            return found
        if kind == "profiles":
            profiles = profiles_here(klog_home(), Path.cwd())
            return [] if profiles is None else sorted(profiles.by_name)
        before = ctx.find_root().params  # the noun
        flags = {
            name: ctx.params.get(name) or before.get(name) for name in ("bootstrap_server", "zookeeper", "profile")
        }
        target = resolve(GlobalFlags(**flags))  # type: ignore[arg-type]
        if kind == "znodes":
            below = f"{about.rstrip('/')}/"
            known = {*ZNODES, *_remembered(target, kind)}
            return [one.removeprefix(below) for one in known if one.startswith(below)]
        if kind == "numbers":
            names = (one.rpartition("-") for one in _remembered(target, "partitions"))
            return [number for topic, _, number in names if topic == about]
        return _remembered(target, kind)
    except Exception:
        return []  # whatever it is, the person who typed <Tab> does not want to read about it


def remember_topics(target: Target, partitions: Mapping[str, int]) -> None:
    """Keep the names, each with its number of partitions, for the next completion."""
    remember(target, "topics", partitions)
    names = (f"{topic}-{number}" for topic, count in partitions.items() for number in range(count))
    remember(target, "partitions", islice(names, CACHED_NAMES_MAX))


def remember_acts(target: Target, acts: Mapping[str, str]) -> None:
    """Acts, id -> what it did: their ids sort by time."""
    remember(target, "acts", [f"{act}\t{acts[act]}" for act in sorted(acts)[-ACTS_KEPT:]])


def remember_more(target: Target, kind: str, names: Iterable[str]) -> None:
    """As `remember`; what was known stays."""
    remember(target, kind, {*_remembered(target, kind), *names})


def remember(target: Target, kind: str, names: Iterable[object]) -> None:
    """Keep the names of a kind (topics, partitions, groups, brokers, acts, znodes, trash) for the next completion; a
    home that cannot be written is not an error."""
    path = _cache_file(target, kind)
    text = json.dumps(sorted(map(str, names))[:CACHED_NAMES_MAX])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(text, "utf-8")
        unfinished.replace(path)
    except OSError:
        pass


def _remembered(target: Target, kind: str) -> list[str]:
    try:
        known = json.loads(_cache_file(target, kind).read_text("utf-8"))
    except (OSError, ValueError):
        known = []
    return [one for one in known if isinstance(one, str)] if isinstance(known, list) else []


def _cache_file(target: Target, kind: str) -> Path:
    import hashlib  # with what it loads 8 ms, for every command that names a topic

    address = target.bootstrap or target.zookeeper or ""
    return klog_home() / "cache" / f"{kind}-{hashlib.sha256(address.encode()).hexdigest()[:16]}.json"
