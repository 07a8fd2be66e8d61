"""The file of a reassignment: Kafka's ``{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}``.

People edit it, so every error names the file, the entry, what was found and what is expected. The plan that undoes it
is written beside it, as ``<file>.rollback``, in the same form.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from klog.config.properties import read_text
from klog.errors import InvalidRequest, NoSuchThing
from klog.names import TopicPartition, is_topic_name
from klog.storage.filesystem import OsFileSystem

VERSION = 1
SHOWN_CHARS_MAX = 100

Replicas = Mapping[TopicPartition, Sequence[int]]
"""Partition -> broker ids, the preferred leader first."""

Plan = Mapping[TopicPartition, tuple[int, ...]]
"""What a file wants."""


class WrongPlan(InvalidRequest, code="WRONG_PLAN"):
    """A file that is not a plan."""


def rollback_path(path: Path) -> Path:
    """The path of the plan that undoes it."""
    return path.with_name(path.name + ".rollback")


def write(path: Path, placement: Replicas) -> None:
    """Make or replace the file, whole or not at all."""
    partitions = [
        {"topic": name.topic, "partition": name.partition, "replicas": list(ids)}
        for name, ids in sorted(placement.items())
    ]
    lines = ",\n".join(f"  {json.dumps(one)}" for one in partitions)
    OsFileSystem().replace(str(path), f'{{"version": {VERSION}, "partitions": [\n{lines}\n]}}\n'.encode())


def read(path: Path) -> Plan:
    """What the file wants; NoSuchThing where there is none, WrongPlan where it makes no sense."""
    try:
        found = json.loads(read_text(path), object_pairs_hook=_unique)
    except FileNotFoundError:
        raise NoSuchThing(f"file {path} does not exist", hint="`klog reassign plan --file F` makes one") from None
    except OSError as error:
        raise NoSuchThing(f"{path} could not be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise WrongPlan(f"{path}: {error}; expected JSON") from None

    def check(good: object, where: str, value: Any, expected: str) -> None:
        if not good:
            shown = "nothing" if value is None else json.dumps(value)
            shown = shown if len(shown) <= SHOWN_CHARS_MAX else shown[:SHOWN_CHARS_MAX] + "..."
            raise WrongPlan(f"{path}: {where}: found {shown}; expected {expected}")

    check(isinstance(found, dict), "the file", found, 'an object with "version" and "partitions"')
    version, listed = found.get("version"), found.get("partitions")
    check(version == VERSION and version is not True, '"version"', version, str(VERSION))
    check(listed and isinstance(listed, list), '"partitions"', listed, "a list of at least one object")
    wanted: dict[TopicPartition, tuple[int, ...]] = {}
    for at, entry in enumerate(listed, 1):
        where = f"entry {at}"
        check(isinstance(entry, dict), where, entry, 'an object with "topic", "partition" and "replicas"')
        topic, number, ids = (entry.get(key) for key in ("topic", "partition", "replicas"))
        check(isinstance(topic, str) and is_topic_name(topic), f'{where}: "topic"', topic, "the name of a topic")
        check(_is_id(number), f'{where}: "partition"', number, "a number from 0 on")
        name = TopicPartition(topic, number)
        where = f"{where} ({name})"
        check(name not in wanted, where, str(name), "each partition once")
        is_good = ids and isinstance(ids, list) and all(map(_is_id, ids)) and len(set(ids)) == len(ids)
        check(is_good, f'{where}: "replicas"', ids, "a list of different broker ids, the preferred leader first")
        unknown = sorted(entry.keys() - {"topic", "partition", "replicas", "log_dirs"})
        check(not unknown, where, unknown, 'no keys but "topic", "partition" and "replicas"')
        wanted[name] = tuple(ids)
    return wanted


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """ValueError for a key that is there twice: json would take the last one without a word."""
    name, times = Counter(key for key, _ in pairs).most_common(1)[0] if pairs else ("", 0)
    if times > 1:
        raise ValueError(f"an object has the key {name!r} twice")
    return dict(pairs)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
