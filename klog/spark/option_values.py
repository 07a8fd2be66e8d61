"""How the values of options are written: numbers, durations, JSON of offsets. UsageError names the option, always."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from klog.client.raw_fetch import Range
from klog.config.units import worded_duration_ms
from klog.errors import UsageError
from klog.names import TopicPartition, unnested

_OF_JAVA = re.compile(r"\\[pP0].?|&&|\[\^?\]?[^][]*\[|\(\?\w*x")
"""What Python has not, or takes for something else, outside of escapes: properties, octal codes, intersections, classes
of classes, and ``(?x)``, under which Java leaves out spaces in classes too."""


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    """The options under names in small letters: option names do not care about case."""
    return {name.lower(): value for name, value in options.items()}


def choice(given: Mapping[str, str], name: str, default: str, choices: tuple[str, ...]) -> str:
    value = given.get(name.lower(), default).strip().lower()
    if value not in choices:
        raise UsageError(f'option "{name}": {value!r} is not {" or ".join(choices)}')
    return value


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    return choice(given, name, str(default).lower(), ("true", "false")) == "true"


def number(given: Mapping[str, str], name: str, least: int = 1) -> int | None:
    """A whole number, ``least`` or more; None where the option is not given."""
    text = given.get(name.lower())
    if text is None:
        return None
    if not (text.strip().isascii() and text.strip().isdigit()) or int(text) < least:
        raise UsageError(f'option "{name}": {text!r} is not a whole number, {least} or more')
    return int(text)


def time_ms(given: Mapping[str, str], name: str) -> int:
    """Milliseconds since the epoch, of an option that is given."""
    text = given[name.lower()].strip()
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f'option "{name}": {text!r} is not a time in milliseconds since 1970')
    return int(text)


def duration_ms(given: Mapping[str, str], name: str, default_ms: int) -> int:
    text = given.get(name.lower())
    if text is None:
        return default_ms
    found = worded_duration_ms(text)
    if found is None:
        raise UsageError(f'option "{name}": {text!r} is not a duration like 500ms, 30s, 15m or 2h')
    return found


def offsets(name: str, text: str) -> dict[TopicPartition, int]:
    """``{"topic": {"0": 23, "1": -1}}``."""
    value = as_json(name, text)
    try:
        return {one: int(offset) for one, offset in unnested(value).items()}
    except (AttributeError, TypeError, ValueError):
        raise UsageError(f'option "{name}": {text!r} is not like {{"topic": {{"0": 23, "1": -1}}}}') from None


def partitions(name: str, text: str) -> tuple[TopicPartition, ...]:
    """``{"topic": [0, 1]}``."""
    value = as_json(name, text)
    try:
        found = tuple(TopicPartition(topic, int(one)) for topic, numbers in value.items() for one in numbers)
    except (AttributeError, TypeError, ValueError):
        raise UsageError(f'option "{name}": {text!r} is not like {{"topic": [0, 1]}}') from None
    if not found:
        raise UsageError(f'option "{name}": {text!r} names no partition')
    return found


def ranges(name: str, text: str) -> tuple[Range, ...]:
    """``[["topic", 0, 23, 80]]``."""
    value = as_json(name, text)
    try:
        found = tuple(Range(str(topic), int(partition), int(start), int(end)) for topic, partition, start, end in value)
    except (TypeError, ValueError):
        raise UsageError(f'option "{name}": {text!r} is not like [["topic", 0, 23, 80]]') from None
    for one in found:
        if not 0 <= one.from_offset <= one.to_offset:
            raise UsageError(f'option "{name}": {one} does not go from an offset to one that is not below it')
    return found


def as_json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f'option "{name}": {text!r} is not JSON ({error})') from None


def pattern(name: str, text: str) -> re.Pattern[str]:
    r"""For whole names of topics, by Python's `re`.

    Java's ``\Q...\E`` is taken, as `Pattern.quote` writes it. What else Java has, and Python has not or means
    otherwise, is refused: a pattern that both take finds the same topics.
    """
    plain = re.sub(r"\\Q(.*?)(?:\\E|\Z)", lambda quoted: re.escape(quoted[1]), text, flags=re.DOTALL)
    try:
        if (found := _OF_JAVA.search(re.sub(r"\\[^pP0]", "__", plain))) is not None:
            raise re.error(f"{found[0]} is Java's; Python's re has no properties, octal codes, or classes of classes")
        return re.compile(plain)
    except re.error as error:
        hint = "write classes out: [a-z] for \\p{Lower}, (?i:a) for a flag in the middle"
        raise UsageError(
            f'option "{name}": {text!r} is not a regular expression of Python ({error})', hint=hint
        ) from None


def names(name: str, text: str) -> tuple[str, ...]:
    """``a, b``; at least one."""
    found = tuple(filter(None, (part.strip() for part in text.split(","))))
    if not found:
        raise UsageError(f'option "{name}": {text!r} names nothing')
    return found
