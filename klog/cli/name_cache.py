"""What completes by itself: names of topics and of groups, from a small cache.

Completion must not hurt: it asks no broker, prints nothing and offers nothing where it does not know. The names are
those that the last ``klog topic list``, ``klog group list`` or shell saw of the same cluster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import typer

from klog.cli.target import Target, TargetFlags, klog_home, resolve

CACHED_NAMES_MAX = 10_000
"""Longer lists do not help anyone who completes a name."""


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The known topics that begin so."""
    return _names(ctx, "topics", incomplete)


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The known groups that begin so."""
    return _names(ctx, "groups", incomplete)


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
