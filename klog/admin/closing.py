"""Closing a running open cluster: what `klog security add` and `klog security close` write into a broker's settings.

Both write one block at the end of the file, which replaces an earlier one; the lines above stay as they are, and the
block's win, as the last of equal keys does. Taking the block out of the file opens the broker again.

    # >>> klog security add
    listeners=PLAINTEXT://broker-1:9092,SASL_SSL://broker-1:9093
    super.users=User:broker;User:admin;User:ANONYMOUS
    ... and the settings of DIR/broker.properties
    # <<< klog security add

While there are both kinds of listeners, a client of an open one may do everything, as before: the super user
`User:ANONYMOUS` says so. With `close` it goes together with the open listeners. Brokers have their credentials for
ZooKeeper from `add` on, and close the nodes that they create from `close` on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klog.admin.security_files import BROKER_SETTINGS
from klog.config import BrokerConfig, parse_properties, read_properties
from klog.config.broker import SECRETS
from klog.config.properties import read_text
from klog.errors import NoSuchThing, Refused
from klog.names import host_port
from klog.security.client_security import PLAINTEXT
from klog.security.principal import ANONYMOUS
from klog.storage.filesystem import OsFileSystem

LISTENER: Final = "SASL_SSL"
ADD, CLOSE = "klog security add", "klog security close"
HIDDEN: Final = "(hidden)"
_BLOCK = re.compile(rf"\n?^# >>> ({ADD}|{CLOSE})\n.*?^# <<< \1\n?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class SettingWritten:
    """A setting of the block; a secret's value is not shown."""

    name: str
    value: str


def add(path: Path, folder: Path, port: int) -> list[SettingWritten]:
    """The secured listener beside the open ones of the file, on ``port``; ``folder`` has what `init` wrote.

    Refused where the file gives no open listener, or has a secured one already; NoSuchThing, InvalidConfig.
    """
    above, before = _read(path)
    open_ones = [one for one in before.listeners.all if one.protocol == PLAINTEXT]
    if not before.is_given("listeners") or len(open_ones) != len(before.listeners.all):
        has = ",".join(before.words("listeners")) if before.is_given("listeners") else "none"
        raise Refused(
            f"{path} must give the listeners of a broker that is open, in `listeners`; it gives {has}",
            hint="name there what the broker was started with (--listen overrides the file, so start it without)",
        )
    block = _secured(before, folder, host_port(open_ones[0].host, port))
    block["listeners"] = ",".join((*before.words("listeners"), block["listeners"]))
    told = before["advertised.listeners"]
    if isinstance(told, tuple):
        host = next((one.told_host for one in open_ones if one.told_host), open_ones[0].host)
        block["advertised.listeners"] = ",".join((*told, f"{LISTENER}://{host_port(host, port)}"))
    if "zookeeper.set.acl" in block:  # brokers without the credentials could not write closed nodes
        block["zookeeper.set.acl"] = "false"
    if not before.is_given("authorizer.class.name"):
        block["super.users"] = ";".join((block["super.users"], str(ANONYMOUS)))
    return _write(path, above, ADD, block)


def close(path: Path, folder: Path) -> list[SettingWritten]:
    """Only the secured listener that `add` wrote. Refused where it did not; NoSuchThing, InvalidConfig."""
    above, before = _read(path)
    both = _block_of(path)
    if both is None:
        raise Refused(
            f"{path} has no secured listener that `{ADD}` wrote",
            hint=f"`{ADD} {path} --port PORT` first, and restart the brokers: clients can then move one by one",
        )
    block = _secured(before, folder, "")
    for name in ("listeners", "advertised.listeners"):
        if name in both:
            block[name] = next(one for one in both[name].split(",") if one.startswith(f"{LISTENER}://"))
    return _write(path, above, CLOSE, block)


def _read(path: Path) -> tuple[str, BrokerConfig]:
    """The text without an earlier block, and the settings that it gives."""
    try:
        text = _BLOCK.sub("\n", read_text(path)).rstrip("\n") + "\n"
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise NoSuchThing(f"cannot read the settings in {path}: {reason}") from None
    return text, BrokerConfig.parse(parse_properties(text, source=str(path)), str(path))


def _block_of(path: Path) -> dict[str, str] | None:
    found = _BLOCK.search(read_text(path))
    return None if found is None else parse_properties(found[0], source=str(path))


def _secured(before: BrokerConfig, folder: Path, address: str) -> dict[str, str]:
    """The settings of DIR/broker.properties, joined with those that the broker has: its authorizer, its super users,
    and the protocols of its listeners' names."""
    settings = read_properties(folder / BROKER_SETTINGS)
    settings.pop("security.inter.broker.protocol", None)  # Kafka takes one of the two
    block = {"listeners": f"{LISTENER}://{address}", "inter.broker.listener.name": LISTENER, **settings}
    if before.is_given("authorizer.class.name"):
        for name in ("authorizer.class.name", "allow.everyone.if.no.acl.found"):
            block.pop(name, None)
    given = before.given_text("listener.security.protocol.map")
    if given:
        block["listener.security.protocol.map"] = f"{given},{LISTENER}:{LISTENER}"
    users = ";".join((block.get("super.users", ""), before.given_text("super.users") or ""))
    block["super.users"] = ";".join(dict.fromkeys(one for one in users.split(";") if one))
    return block


def _write(path: Path, above: str, command: str, block: Mapping[str, str]) -> list[SettingWritten]:
    """In the place of the file, which has a password now: for its owner's eyes alone."""
    lines = [f"{name}={value}".replace("\\", "\\\\") for name, value in block.items()]
    text = "\n".join((above, f"# >>> {command}", *lines, f"# <<< {command}", ""))
    BrokerConfig.parse(parse_properties(text, source=str(path)), str(path))
    OsFileSystem().replace(str(path.resolve()), text.encode(), private=True)
    return [SettingWritten(name, HIDDEN if name in SECRETS else value) for name, value in block.items()]
