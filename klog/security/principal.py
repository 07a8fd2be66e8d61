"""The principal of a connection, and the mapping of a certificate's subject to its name.

Rules (ssl.principal.mapping.rules, KIP-371): a list separated by commas; the first that matches decides:

    RULE:PATTERN/REPLACEMENT/     the subject must match all of PATTERN; $1 in REPLACEMENT is its first group
    RULE:PATTERN/REPLACEMENT/L    the same in lower case; /U in upper case
    DEFAULT                       the subject unchanged

A slash inside of PATTERN or REPLACEMENT is written ``\\/``. Where no rule matches, the certificate is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.errors import InvalidConfig

USER: Final = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """``kind``: "User" for all that klog authenticates; permissions are given to ``KIND:NAME``, Kafka's text."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def user(cls, name: str) -> Principal:
        return cls(USER, name)

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Parse ``KIND:NAME``; the name may contain colons. Raises InvalidConfig."""
        kind, colon, name = text.partition(":")
        if not colon or not kind or not name:
            raise InvalidConfig(f"principal {text!r}: expected KIND:NAME, as in User:alice")
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""Of a connection without authentication: plaintext, or TLS without a client certificate."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None is DEFAULT."""
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = _GROUP.sub(lambda group: found[int(group[1])] or "", self.replacement)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


_PIECE = r"((?:\\.|[^\\/])*)"
_RULE = re.compile(rf"\s*(?:DEFAULT|RULE:{_PIECE}/{_PIECE}/([LU]?))\s*")
_GROUP = re.compile(r"\$(\d)")


class MappingRules:
    """See the module. Raises InvalidConfig for rules that do not parse."""

    def __init__(self, text: str = "DEFAULT") -> None:
        self._rules = tuple(_parse(text))

    def name_of(self, subject: str) -> str | None:
        """The name for a certificate's subject (RFC 2253 text); None where no rule matches."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name or None
        return None


def _parse(text: str) -> list[_Rule]:
    rules = []
    at = 0
    while True:
        found = _RULE.match(text, at)
        if found is None or (found.end() < len(text) and text[found.end()] != ","):
            raise InvalidConfig(
                f"ssl.principal.mapping.rules, at {text[at : at + 60]!r}: "
                "expected DEFAULT or RULE:PATTERN/REPLACEMENT/ with L or U behind it or nothing"
            )
        rules.append(_rule(found))
        if found.end() == len(text):
            return rules
        at = found.end() + 1


def _rule(found: re.Match[str]) -> _Rule:
    pattern, replacement, case = found.groups()
    if pattern is None:
        return _Rule(None)
    try:
        compiled = re.compile(pattern.replace("\\/", "/"))
    except re.error as error:
        raise InvalidConfig(f"ssl.principal.mapping.rules: the pattern {pattern!r} is invalid: {error}") from None
    for group in _GROUP.findall(replacement):
        if int(group) > compiled.groups:
            raise InvalidConfig(
                f"ssl.principal.mapping.rules: ${group} in {replacement!r}, "
                f"but the pattern {pattern!r} has {compiled.groups} groups"
            )
    return _Rule(compiled, replacement.replace("\\/", "/"), case)
