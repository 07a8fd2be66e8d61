"""Clusters by name: ``profiles.toml`` in klog's home folder, and ``.klog.toml`` of a project's folder.

Both files have the same form. A section is a profile; ``current`` names the one that commands take which are given no
cluster::

    current = "staging"

    [staging]
    bootstrap_server = "staging-1:9092,staging-2:9092"

    [prod]
    bootstrap_server = "prod-1:9092"
    zookeeper = "prod-zk:2181/klog"
    cluster_id = "Lmunv4rcR6aof7Fm_bLU7A"   # commands refuse a cluster that has another id
    colour = "red"                          # of the shell's prompt
    protected = true                        # what asks wants the profile's name typed
    read_only = true                        # what changes the cluster is refused
    client_config = "prod.properties"       # beside this file: Kafka's client properties, for TLS and SASL
    password_command = "pass show prod"     # prints sasl.password of that file; or token_command, for OAUTHBEARER

Rules
    * A command that prints a secret gets no shell. It may be in ``profiles.toml`` alone: otherwise a checkout could run
      a command.
    * The project's file is the nearest ``.klog.toml``, from the working folder upwards. Its ``current`` goes before
      that of ``profiles.toml``, and may name a profile of either file. A profile that both files have is an error:
      otherwise a checkout could take the protection off a cluster.
    * A project's file that belongs to another user, or that everyone may write, is an error: in a shared folder such as
      ``/tmp`` anyone could put one.
    * An unknown key, a value of another type and a file that does not parse are errors that name the file and the line.
      None of them is skipped: a misspelt ``protected`` must not go unnoticed.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klog.admin import toml_lines
from klog.admin.toml_lines import wrong
from klog.config.properties import read_text
from klog.errors import NoSuchThing, Refused, UsageError
from klog.names import near_hint
from klog.render.columns import MayFail

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

    from klog.client.client_config import SecretCommands

HOME_FILE: Final = "profiles.toml"
PROJECT_FILE: Final = ".klog.toml"
CURRENT: Final = "current"

KEYS: Final[Mapping[str, type]] = {
    "bootstrap_server": str,
    "zookeeper": str,
    "cluster_id": str,
    "colour": str,
    "protected": bool,
    "read_only": bool,
    "client_config": str,
    "password_command": str,
    "token_command": str,
}
COMMANDS: Final = ("password_command", "token_command")
COLOURS: Final = ("red", "green", "yellow", "blue", "magenta", "cyan", "white")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TRUTHS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Profile:
    """One section of a file, and a row; ``current``: a command that is given no cluster takes it here."""

    name: str
    bootstrap: str | None = None
    zookeeper: str | None = None
    cluster_id: str | None = None
    protected: bool = False
    read_only: bool = False
    colour: str | None = None
    current: bool = False
    file: Path = field(default=Path(), metadata={"wide": True})
    client_config: str | None = field(default=None, metadata={"wide": True})
    password_command: str | None = field(default=None, metadata={"wide": True})
    token_command: str | None = field(default=None, metadata={"wide": True})

    @property
    def secrets(self) -> SecretCommands:
        """The commands that print what ``client_config`` leaves out."""
        from klog.client.client_config import SecretCommands

        password, token = (tuple(shlex.split(one or "")) for one in (self.password_command, self.token_command))
        return SecretCommands(password, token)

    @property
    def addresses(self) -> frozenset[str]:
        """Each server of the profile: ``HOST:PORT`` of brokers, and of ZooKeeper without the chroot."""
        return frozenset(split_addresses(self.bootstrap) + split_addresses(self.zookeeper))


@dataclass(frozen=True, slots=True)
class ProfileTest(MayFail):
    """What connecting to a profile's cluster has shown. ``cluster_id``, ``brokers``: as the cluster says them."""

    name: str
    bootstrap: str | None
    cluster_id: str | None
    brokers: int | None
    ms: int | None


@dataclass(frozen=True, slots=True)
class Profiles:
    """All profiles of one file, or those that hold in a folder, where ``file`` is that of klog's home. ``current`` is
    the name that the nearest file gives, and that file."""

    file: Path
    by_name: Mapping[str, Profile]
    current: str | None = None
    current_file: Path | None = None

    def named(self, name: str, named_by: str) -> Profile:
        """The profile; NoSuchThing names those that there are. ``named_by``: what asks for it, in words."""
        found = self.by_name.get(name)
        if found is not None:
            return found
        if not self.by_name:
            raise NoSuchThing(
                f"profile {name!r} ({named_by}) does not exist: {self.file} has none",
                hint=f"klog profile add {name} -B HOST:PORT",
            )
        hint = near_hint(name, self.by_name, f"profiles: {', '.join(sorted(self.by_name))}")
        raise NoSuchThing(f"profile {name!r} ({named_by}) does not exist", hint=hint)

    def of_addresses(self, *given: str | None) -> Profile | None:
        """The profile that has one of these servers, a protected one first."""
        servers = frozenset(server for addresses in given for server in split_addresses(addresses))
        having = [one for one in self.by_name.values() if one.addresses & servers]
        return min(having, key=lambda one: (not one.read_only, not one.protected), default=None)


def split_addresses(addresses: str | None) -> list[str]:
    """``h:1``, ``h:2`` of ``h:1,h:2/chroot``."""
    parts = (addresses or "").partition("/")[0].split(",")
    return [part.strip().lower() for part in parts if part.strip()]


# --- reading


def load(home: Path, folder: Path) -> Profiles:
    """The profiles of klog's home folder and those of the project that ``folder`` belongs to."""
    at_home = read_file(home / HOME_FILE)
    path = project_file(folder)
    if path is None:
        return at_home
    _check_owner(path)
    project = read_file(path)
    for name in sorted(project.by_name.keys() & at_home.by_name.keys()):
        raise UsageError(
            f"two profiles have the name {name!r}: one in {at_home.file}, one in {path}", hint="rename one of them"
        )
    nearest = project if project.current else at_home
    return replace(nearest, file=at_home.file, by_name={**at_home.by_name, **project.by_name})


def project_file(folder: Path) -> Path | None:
    """The nearest ``.klog.toml``, from the folder upwards."""
    for one in (folder, *folder.parents):
        path = one / PROJECT_FILE
        if path.is_file():
            return path
    return None


def _check_owner(path: Path) -> None:
    found = path.stat()
    if found.st_uid not in (os.getuid(), 0):
        raise UsageError(
            f"{path} belongs to another user (uid {found.st_uid}), and would choose the cluster of this command",
            hint=f"give the cluster by -B, -z or --profile; or copy the file to {path.parent} as your own",
        )
    if found.st_mode & stat.S_IWOTH:
        raise UsageError(f"{path} may be written by everyone, and would choose the cluster", hint=f"chmod o-w {path}")


def read_file(path: Path) -> Profiles:
    """A file; without profiles where it does not exist. UsageError with its line."""
    return _parsed(path, *toml_lines.read(path))


def _parsed(path: Path, text: str, document: dict[str, Any]) -> Profiles:
    profiles: dict[str, Profile] = {}
    current = document.pop(CURRENT, None)
    if current is not None and not isinstance(current, str):
        raise wrong(path, text, None, CURRENT, f"must be a string, got {current!r}")
    for name, values in document.items():
        if not isinstance(values, dict):
            raise wrong(path, text, None, name, f"is not a known key; known: {CURRENT}, and sections [NAME]")
        if _NAME.fullmatch(name) is None:
            raise wrong(path, text, name, None, "a profile's name has letters, digits, '.', '_' and '-' only")
        profiles[name] = _profile(path, text, name, values)
    return Profiles(path, profiles, current, path if current else None)


def _profile(path: Path, text: str, name: str, values: dict[str, Any]) -> Profile:
    toml_lines.check(path, text, name, values, KEYS, {"colour": COLOURS})
    for key in COMMANDS:
        if key in values:
            _check_command(path, text, name, key, values)
    bootstrap = values.pop("bootstrap_server", None)
    profile = Profile(name, bootstrap, file=path, **values)
    if not profile.addresses:
        raise wrong(path, text, name, None, "has neither bootstrap_server nor zookeeper")
    return profile


def _check_command(path: Path, text: str, name: str, key: str, values: Mapping[str, Any]) -> None:
    if path.name == PROJECT_FILE:
        raise wrong(path, text, name, key, f"may be in {HOME_FILE} alone: a checkout must not choose what runs here")
    if "client_config" not in values:
        raise wrong(path, text, name, key, "needs client_config, which says who logs in, and how")
    try:
        words = shlex.split(values[key])
    except ValueError as error:
        raise wrong(path, text, name, key, f"is not a command: {error}") from None
    if not words:
        raise wrong(path, text, name, key, "is empty")


def rows(profiles: Profiles, in_use: str | None) -> list[Profile]:
    """All profiles, by name. ``in_use``: the one that commands take here."""
    return [row(profiles.by_name[name], in_use) for name in sorted(profiles.by_name)]


def row(profile: Profile, in_use: str | None) -> Profile:
    """One profile as it is shown."""
    return replace(profile, current=profile.name == in_use)


# --- writing


def parse_setting(word: str) -> tuple[str, str | bool | None]:
    """``colour=red``; the value is None for ``colour=``, which removes the key. UsageError."""
    key, sign, value = word.partition("=")
    if not sign or key not in KEYS:
        shown = f"{key}=..." if sign else word  # the value may be a secret that belongs into client_config's file
        raise UsageError(f"{shown!r} is not KEY=VALUE with a key of a profile", hint=f"keys: {', '.join(KEYS)}")
    if not value:
        return key, None
    if KEYS[key] is str:
        return key, value
    if value not in _TRUTHS:
        raise UsageError(f"{key} must be true or false, got {value!r}")
    return key, _TRUTHS[value]


def check_name(name: str) -> None:
    """UsageError for a name that no profile can have."""
    if _NAME.fullmatch(name) is None or name == CURRENT:
        raise UsageError(f"{name!r} cannot be a profile's name: letters, digits, '.', '_' and '-', and not {CURRENT!r}")


def add(path: Path, name: str, values: Mapping[str, str | bool | None]) -> None:
    """Write a new profile to a file. Refused where the file has it."""
    check_name(name)
    if name in read_file(path).by_name:
        raise Refused(f"{path} has a profile {name!r} already", hint=f"klog profile set {name} KEY=VALUE")
    document = _open(path)
    document[name] = {}
    _change(document, name, values)
    _save(path, document)


def change(profile: Profile, values: Mapping[str, str | bool | None]) -> None:
    """Set keys of a profile in its file; None removes one."""
    document = _open(profile.file)
    _change(document, profile.name, values)
    _save(profile.file, document)


def remove(profile: Profile) -> None:
    """Take a profile out of its file, and ``current`` where that names it."""
    document = _open(profile.file)
    del document[profile.name]
    if document.get(CURRENT) == profile.name:
        del document[CURRENT]
    _save(profile.file, document)


def use(path: Path, name: str | None) -> None:
    """Make a profile the current one of a file; None: none is."""
    import tomlkit

    document = _open(path)
    if name is None:
        document.pop(CURRENT, None)
    elif CURRENT in document:
        document[CURRENT] = name
    else:  # before all sections: a key behind a section's head belongs to the section
        line = f"{tomlkit.dumps({CURRENT: name})}\n"
        text = tomlkit.dumps(document)
        text += "\n" if text and not text.endswith("\n") else ""
        text = re.sub(r"^(?=[ \t]*\[|\Z)", line, text, count=1, flags=re.MULTILINE)
        document = tomlkit.parse(text)
    _save(path, document)


def _change(document: TOMLDocument, name: str, values: Mapping[str, str | bool | None]) -> None:
    section: Any = document[name]
    for key, value in values.items():
        if value is None:
            section.pop(key, None)
        else:
            section[key] = value


def _open(path: Path) -> TOMLDocument:
    """The file with its comments, to be changed and saved."""
    import tomlkit

    read_file(path)  # raises its errors before it is written again
    return tomlkit.parse(read_text(path) if path.exists() else "")


def _save(path: Path, document: TOMLDocument) -> None:
    """Whole or not at all; UsageError, and nothing written, where a profile would not be valid."""
    import tomlkit

    from klog.storage.filesystem import OsFileSystem

    text = tomlkit.dumps(document)
    _parsed(path, text, toml_lines.parse(path, text))
    path.parent.mkdir(parents=True, exist_ok=True)
    OsFileSystem().replace(str(path), text.encode(), private=True)
