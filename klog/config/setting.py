"""A setting: its name, the values that it takes, and its effect.

A setting's text comes from a properties file, a flag or ZooKeeper; `Setting.parse` turns it into a value of one of
these kinds, or tells what was expected:

    int     an integer                              bytes   an integer, in bytes
    ms      an integer, in milliseconds             bool    true or false
    float   a decimal number                        string  any text
    list    items separated by commas               enum    one of `Setting.check`'s words

Everything here is immutable. NamedTuples rather than dataclasses: the whole table is made at import, in under 10 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from klog.errors import InvalidConfig, UsageError

Kind = Literal["int", "bytes", "ms", "float", "bool", "string", "list", "enum"]
Value = int | float | bool | str | tuple[str, ...] | None
"""A typed value; None for a setting without value and default."""

LONG_MAX = 2**63 - 1
"""Kafka's value for "never" and "no limit" where -1 is not allowed."""
INT_MAX = 2**31 - 1

_WORDS: dict[Kind, str] = {
    "int": "an integer",
    "bytes": "an integer (bytes)",
    "ms": "an integer (milliseconds)",
    "float": "a number",
    "bool": "true or false",
    "string": "a string",
    "list": "a list separated by commas",
    "enum": "a value",
}


class Check(NamedTuple):
    """A condition beyond a value's kind; ``expected`` ends the sentence "expected an integer ..."."""

    expected: str
    holds: Callable[[object], bool]


def at_least(lowest: float) -> Check:
    return Check(f"of at least {lowest}", lambda value: value >= lowest)  # type: ignore[operator]


def between(lowest: float, highest: float) -> Check:
    return Check(f"between {lowest} and {highest}", lambda value: lowest <= value <= highest)  # type: ignore[operator]


def at_least_or_off(lowest: int) -> Check:
    """-1 switches the limit off."""
    return Check(
        f"of at least {lowest}, or -1 for no limit",
        lambda value: value == -1 or value >= lowest,  # type: ignore[operator]
    )


def one_of(*words: str) -> Check:
    return Check("out of " + ", ".join(words), lambda value: value in words)


def every(*words: str) -> Check:
    """For lists: each item one of these."""
    return Check("out of " + ", ".join(words), lambda value: all(item in words for item in value))  # type: ignore[attr-defined]


def not_empty(what: str) -> Check:
    return Check(f"that names {what}", bool)


class Setting(NamedTuple):
    """A row of the table of settings.

    ``follows``: settings that decide while this one is not given: (name, factor), the first given one wins, then the
    first with a default. ``aliases``: older names of the same value. ``effect``: what klog does with the value, in a
    few words; ``none`` marks a setting of Kafka's that klog accepts and does not use.
    """

    name: str
    kind: Kind
    default: Value
    check: Check | None = None
    aliases: tuple[str, ...] = ()
    follows: tuple[tuple[str, int], ...] = ()
    doc: str = ""
    effect: str = "none"

    @property
    def expected(self) -> str:
        """The expected value in words: "an integer (bytes) of at least 14"."""
        words = _WORDS[self.kind]
        return f"{words} {self.check.expected}" if self.check else words

    def parse(self, text: str, *, name: str | None = None, source: str | None = None) -> Value:
        """The typed value of ``text``. Raises InvalidConfig with the name, the text found and what was expected."""
        text = text.strip()
        try:
            value = _parse_kind(self.kind, text)
            valid = self.check is None or self.check.holds(value)
        except ValueError:
            valid = False
        if not valid:
            shown = self.name if name is None else name
            where = f" (from {source})" if source else ""
            raise InvalidConfig(f"{shown}={text}{where}: expected {self.expected}")
        return value


Table = Mapping[Setting, tuple[str, str]]
"""Settings, each with its ``doc`` and its ``effect``."""


def described(table: Table) -> tuple[Setting, ...]:
    """The settings of a table, which say what they mean."""
    return tuple(one._replace(doc=doc, effect=effect) for one, (doc, effect) in table.items())


def without_unit(setting: Setting, text: str) -> str:
    """``7d`` of a setting in ms as 604800000, ``1GiB`` of one in bytes as 1073741824.

    Other texts stay unchanged: `Setting.parse` refuses invalid ones.
    """
    from klog.config.units import parse_duration_ms, parse_size

    if setting.kind not in ("ms", "bytes") or text.strip().lstrip("-").isdigit():
        return text
    try:
        return str(parse_duration_ms(text) if setting.kind == "ms" else parse_size(text))
    except UsageError:
        return text


def text_of(value: Value) -> str | None:
    """A value as text for a properties file; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _parse_kind(kind: Kind, text: str) -> Value:
    if kind in ("int", "bytes", "ms"):
        if not text.isascii() or "_" in text:  # int() would take both
            raise ValueError(text)
        number = int(text)
        if not -(2**63) <= number <= LONG_MAX:
            raise ValueError(text)
        return number
    if kind == "float":
        if not text.isascii() or "_" in text or text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
            raise ValueError(text)
        return float(text)
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if kind == "list":
        return tuple(item for item in (part.strip() for part in text.split(",")) if item)
    return text
