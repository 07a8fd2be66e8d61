"""Settings of a broker that is started, as arguments of `klog broker start`; secrets, which those refuse, in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from klog.config.broker import SECRETS


def arguments(settings: Mapping[str, str], folder: Path) -> list[str]:
    """``-X`` for each, and ``--config`` with a file in the folder where there are secrets."""
    secret = {name: value for name, value in settings.items() if name.endswith(tuple(SECRETS))}
    words = [part for name, value in settings.items() if name not in secret for part in ("-X", f"{name}={value}")]
    if secret:
        path = folder / "secret.properties"
        path.touch(0o600)
        lines = (f"{name}={value.replace(chr(92), chr(92) * 2)}" for name, value in secret.items())
        path.write_text("\n".join([*lines, ""]))
        words += ["--config", str(path)]
    return words
