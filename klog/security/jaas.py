"""``sasl.jaas.config``, as Kafka's users write it: ``MODULE required NAME=VALUE NAME="VALUE";``.

The module's class tells Java the mechanism; klog reads the options only. For a server of PLAIN, ``user_NAME`` is the
password of client NAME; ``username`` and ``password`` are this side's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from klog.errors import InvalidConfig

_HEAD = re.compile(r"\s*[\w.$]+\s+(?:required|requisite|sufficient|optional)(?=[\s;]|$)", re.ASCII | re.IGNORECASE)
_OPTION = re.compile(r"""\s*([\w.\-@$]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.DOTALL)
_USER = "user_"


@dataclass(frozen=True, slots=True)
class Jaas:
    """One login module. Its repr hides passwords."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    users: dict[str, str] = field(default_factory=dict, repr=False)
    """Name -> password."""

    @classmethod
    def parse(cls, text: str) -> Jaas:
        """Raises InvalidConfig without quoting the text, which has passwords."""
        head = _HEAD.match(text)
        if head is None:
            raise InvalidConfig('sasl.jaas.config: expected MODULE required NAME="VALUE" ... ;')
        options: dict[str, str] = {}
        at = head.end()
        while (found := _OPTION.match(text, at)) is not None:
            name, double, single, bare = found.groups()
            quoted = double if double is not None else single
            options[name] = bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
            at = found.end()
        if text[at:].strip() not in ("", ";"):
            raise InvalidConfig(
                f"sasl.jaas.config, from character {at} on: expected NAME=VALUE, then a semicolon at the end"
            )
        users = {name.removeprefix(_USER): value for name, value in options.items() if name.startswith(_USER)}
        return cls(options.get("username"), options.get("password"), users)
