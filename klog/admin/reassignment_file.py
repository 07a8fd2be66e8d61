"""The file of a reassignment: Kafka's ``{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}``.

People edit it, so every error names the file, the entry, what was found and what is expected. The plan that undoes it
is written beside it, as ``<file>.rollback``, in the same form.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from klog.config.text_files import read_text
from klog.errors import InvalidRequest, KlogError, NoSuchThing
from klog.names import TopicPartition, check_topic_name

VERSION = 1
SHOWN_CHARS_MAX = 100

Replicas = Mapping[TopicPartition, Sequence[int]]
"""Partition -> broker ids, the preferred leader first."""


class WrongPlan(InvalidRequest):
    """A file that is not a plan."""

    code = "WRONG_PLAN"


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
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(f'{{"version": {VERSION}, "partitions": [\n{lines}\n]}}\n')
        part.replace(path)
    except OSError as error:
        raise KlogError(f"{path} could not be written: {error.strerror or error}") from None


def read(path: Path) -> dict[TopicPartition, tuple[int, ...]]:
    """What the file wants; NoSuchThing where there is none, WrongPlan where it makes no sense."""
    try:
        text = read_text(path)
    except FileNotFoundError:
        raise NoSuchThing(f"file {path} does not exist", hint="`klog reassign plan --file F` makes one") from None
    except UnicodeDecodeError as error:
        raise WrongPlan(f"{path}: byte {error.start} is not UTF-8; expected JSON") from None
    except OSError as error:
        raise NoSuchThing(f"{path} could not be read: {error.strerror or error}") from None
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise WrongPlan(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}; expected JSON") from None
    except (ValueError, RecursionError):
        raise WrongPlan(f"{path}: brackets are nested too deep, or a number is too long; expected JSON") from None
    except _TwiceError as error:
        raise WrongPlan(f"{path}: an object has the key {error.args[0]!r} twice") from None
    return _plan(path, found)


class _TwiceError(Exception):
    """A key is there twice: json would take the last one without a word."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(name for name in names if names.count(name) > 1))
    return found


def _plan(path: Path, found: Any) -> dict[TopicPartition, tuple[int, ...]]:
    if not isinstance(found, dict):
        raise _wrong(path, "the file", found, 'an object with "version" and "partitions"')
    if found.get("version") != VERSION or isinstance(found.get("version"), bool):
        raise _wrong(path, '"version"', found.get("version"), str(VERSION))
    listed = found.get("partitions")
    if not isinstance(listed, list):
        raise _wrong(path, '"partitions"', listed, "a list of objects")
    if not listed:
        raise _wrong(path, '"partitions"', listed, "at least one partition")
    wanted: dict[TopicPartition, tuple[int, ...]] = {}
    for at, entry in enumerate(listed, 1):
        where = f"entry {at}"
        if not isinstance(entry, dict):
            raise _wrong(path, where, entry, 'an object with "topic", "partition" and "replicas"')
        name = _name(path, where, entry)
        if name in wanted:
            raise WrongPlan(f"{path}: {where}: {name} is there twice; expected each partition once")
        wanted[name] = _replicas(path, f"{where} ({name})", entry.get("replicas"))
        unknown = sorted(entry.keys() - {"topic", "partition", "replicas", "log_dirs"})
        if unknown:
            raise WrongPlan(f'{path}: {where} ({name}): unknown key {unknown[0]!r}; expected "replicas" and no other')
    return wanted


def _name(path: Path, where: str, entry: dict[str, Any]) -> TopicPartition:
    topic, partition = entry.get("topic"), entry.get("partition")
    if not isinstance(topic, str):
        raise _wrong(path, f'{where}: "topic"', topic, "the name of a topic")
    try:
        check_topic_name(topic)
    except KlogError as error:
        raise WrongPlan(f'{path}: {where}: "topic": {error.message}') from None
    if not isinstance(partition, int) or not _is_number(partition) or partition < 0:
        raise _wrong(path, f'{where}: "partition"', partition, "a number from 0 on")
    return TopicPartition(topic, partition)


def _replicas(path: Path, where: str, found: Any) -> tuple[int, ...]:
    if not isinstance(found, list) or not found:
        raise _wrong(path, f'{where}: "replicas"', found, "a list of broker ids, the preferred leader first")
    for one in found:
        if not _is_number(one) or one < 0:
            raise _wrong(path, f'{where}: "replicas"', one, "numbers of brokers")
    if len(set(found)) < len(found):
        raise _wrong(path, f'{where}: "replicas"', found, "each broker once")
    return tuple(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(path: Path, where: str, found: Any, expected: str) -> WrongPlan:
    shown = "nothing" if found is None else json.dumps(found)
    if len(shown) > SHOWN_CHARS_MAX:
        shown = shown[:SHOWN_CHARS_MAX] + "..."
    return WrongPlan(f"{path}: {where}: found {shown}; expected {expected}")
