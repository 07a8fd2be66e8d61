"""Words of the form NAME=VALUE."""

from __future__ import annotations

from collections.abc import Sequence

from klog.errors import UsageError


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


def _is_secret(name: str) -> bool:
    """Also as the setting of one listener: ``listener.name.NAME.SETTING``."""
    from klog.config.broker import SECRETS as OF_BROKERS
    from klog.security.client_security import SECRETS as OF_CLIENTS

    return any(name == one or name.endswith(f".{one}") for one in OF_BROKERS | OF_CLIENTS)
