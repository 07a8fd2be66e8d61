"""Words of the form NAME=VALUE, such as those of ``-X``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from klog.errors import UsageError
from klog.security.client_security import SETTINGS


def pairs(words: Sequence[str] | None) -> list[tuple[str, str]]:
    """``["a=1", "b="]`` as pairs; a value may hold further ``=``."""
    found = []
    for word in words or ():
        name, sign, value = word.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"{word!r} is not NAME=VALUE", hint=f"write {name.strip() or 'NAME'}=VALUE")
        found.append((name.strip(), value))
    return found


def settings(words: Sequence[str] | None, file_flag: str = "--client-config") -> dict[str, str]:
    """The same as a dictionary, for names of which each has one value.

    Secrets are refused, since every user of the machine can read a command line; ``file_flag`` takes them in a file.
    """
    given = pairs(words)
    found = dict(given)
    if len(found) < len(given):
        twice = next(name for index, (name, _) in enumerate(given) if name in dict(given[:index]))
        raise UsageError(f"{twice} is given twice")
    for name in found:
        if _is_secret(name):
            raise UsageError(
                f"{name} is a secret, and `ps` shows command lines to every user of this machine",
                hint=f"write it into a file that only you can read, and give that with {file_flag}",
            )
    return found


def connect_by(given: Sequence[str] | None, values: dict[str, Any]) -> Mapping[str, str]:
    """What ``-X`` says of the connection: security.protocol, sasl.*, ssl.*. UsageError.

    ``given``: the words of the flag that is for connections alone. Where a command's own ``-X`` is for more, its
    words are in ``values["properties"]``, and those of the connection are taken out of them.
    """
    named = [(word, word.partition("=")[0].strip()) for word in values.get("properties") or ()]
    ours = [word for word, name in named if name in SETTINGS]
    if ours:
        values["properties"] = [word for word, name in named if name not in SETTINGS]
    found = settings(given) | settings(ours)
    for name in found:
        if name not in SETTINGS:
            near = get_close_matches(name, SETTINGS, 1, 0.6)
            raise UsageError(
                f"-X {name}: not a setting of connections",
                hint=f"did you mean {near[0]}?" if near else "security.protocol, sasl.* and ssl.* are",
            )
    return found


def _is_secret(name: str) -> bool:
    """Also as the setting of one listener: ``listener.name.NAME.SETTING``."""
    from klog.config.broker import SECRETS as OF_BROKERS
    from klog.security.client_security import SECRETS as OF_CLIENTS

    return any(name == one or name.endswith(f".{one}") for one in OF_BROKERS | OF_CLIENTS)
