"""``klog profile``: clusters by name."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from klog.admin import profiles
from klog.admin.profiles import Profile, Profiles, ProfileTest
from klog.cli import flags
from klog.cli.command import Noun
from klog.cli.flags import GlobalFlags, argument, flag
from klog.cli.invocation import Invocation
from klog.cli.name_cache import profile_names
from klog.cli.target import HOME_FILE, PROFILE_VARIABLE, PROJECT_FILE, klog_home, resolve
from klog.errors import KlogError, NoSuchThing, Refused, UsageError
from klog.render import Report

if TYPE_CHECKING:
    from klog.client.cluster import Cluster

profile = Noun("profile", "Clusters by name: addresses, colour, protection.")

ROW = "klog.admin.profiles:Profile"
Colour = Literal["red", "green", "yellow", "blue", "magenta", "cyan", "white"]


Name = Annotated[str, argument("NAME", "The profile.", autocompletion=profile_names)]
Project = Annotated[bool, flag("--project", f"Write to {PROJECT_FILE} in the working folder, not to {HOME_FILE}.")]


def _profiles() -> Profiles:
    return profiles.load(klog_home(), Path.cwd())


def _in_use() -> str | None:
    """The profile that a command without flags takes here."""
    try:
        target = resolve(GlobalFlags())
    except KlogError:
        return None
    return None if target.profile is None else target.profile.name


@profile.command("list", rows=ROW, connects=False)
def list_profiles(invocation: Invocation) -> Report:
    """List the profiles of `profiles.toml` in KLOG_HOME and of the nearest `.klog.toml`, from this folder upwards.

    CURRENT marks the profile that commands take here if they are given no cluster.
    """
    found = _profiles()
    note = "" if found.by_name else f"no profiles in {found.file}; klog profile add NAME -B HOST:PORT"
    return invocation.report(profiles.rows(found, _in_use()), footer=note)


@profile.command("show", rows=ROW, connects=False)
def show(
    invocation: Invocation,
    name: str | None = argument("NAME", "The profile; the one in use here if not given.", autocompletion=profile_names),
) -> Report:
    """Show a profile, and where it is written."""
    in_use = _in_use()
    if name is None and in_use is None:
        target = resolve(GlobalFlags())
        raise NoSuchThing(f"no profile is in use here: the cluster is {target}", hint="klog profile use NAME")
    chosen = _profiles().named(name or in_use or "", "argument NAME")
    return invocation.report([profiles.row(chosen, in_use)], footer=f"in {chosen.file}")


@profile.command("add", rows=ROW, connects=False)
async def add(
    invocation: Invocation,
    name: str = argument("NAME", "The new profile.", ...),
    bootstrap_server: flags.BootstrapServer = None,
    zookeeper: flags.ZooKeeperFlag = None,
    client_config: flags.ClientConfig = None,
    timeout: flags.Timeout = None,
    cluster_id: str | None = flag("--cluster-id ID", "The id that the cluster must have."),
    colour: Colour | None = flag("--colour COLOUR", "Of the shell's prompt."),
    protected: bool = flag("--protected", "What asks wants the profile's name typed."),
    read_only: bool = flag("--read-only", "Refuse whatever changes the cluster."),
    project: Project = False,
) -> Report:
    """Write a profile for the cluster of -B or -z.

    The cluster is asked for its id, which is written with the addresses: commands then refuse a cluster that has
    another id at these addresses. If the cluster does not answer, the profile is written without an id. The file of
    --client-config is how commands connect to it.
    """
    if not bootstrap_server and not zookeeper:
        raise UsageError("a profile needs the addresses of its cluster", hint=f"klog profile add {name} -B HOST:PORT")
    path = Path.cwd() / PROJECT_FILE if project else klog_home() / HOME_FILE
    profiles.check_name(name)
    if (known := _profiles().by_name.get(name)) is not None:
        raise UsageError(f"there is a profile {name!r} in {known.file}", hint=f"klog profile set {name} KEY=VALUE")
    if cluster_id is None:
        try:
            given = {"bootstrap_server": bootstrap_server, "zookeeper": zookeeper, "client_config": client_config}
            async with _connected(invocation, **given, timeout=timeout) as cluster:
                cluster_id = await cluster.cluster_id()
        except UsageError:
            raise
        except (KlogError, OSError) as error:
            invocation.warn(f"written without a cluster id: {error}")
    values: dict[str, str | bool | None] = {
        "bootstrap_server": bootstrap_server,
        "zookeeper": zookeeper,
        "cluster_id": cluster_id,
        "client_config": None if client_config is None else str(client_config.absolute()),
        "colour": colour,
        "protected": protected or None,
        "read_only": read_only or None,
    }
    profiles.add(path, name, {key: value for key, value in values.items() if value is not None})
    return _written(invocation, name)


@asynccontextmanager
async def _connected(invocation: Invocation, **flags: Any) -> AsyncIterator[Cluster]:
    """The cluster of these flags, by a session of its own."""
    shared = replace(invocation.shared, session=None, **flags)
    asking = Invocation(shared, invocation.command, invocation.traits)
    if shared.client_config is not None:
        asking.take_client_config(shared)
    async with asking.session:
        yield await asking.cluster()


@profile.command("set", rows=ROW, connects=False)
def set_keys(
    invocation: Invocation,
    name: Name,
    given: list[str] = argument(
        "KEY=VALUE",
        "bootstrap_server, zookeeper, cluster_id, colour, "
        "protected (true or false), read_only, client_config, password_command, token_command. "
        "KEY= removes the key.",
        ...,
    ),
) -> Report:
    """Change keys of a profile. Comments in the file stay."""
    values = dict(profiles.parse_setting(word) for word in given)
    profiles.change(_profiles().named(name, "argument NAME"), values)
    return _written(invocation, name)


@profile.command("use", rows=ROW, connects=False)
def use(
    invocation: Invocation,
    name: str | None = argument("NAME", "The profile.", autocompletion=profile_names),
    none: bool = flag("--none", "Use no profile."),
    project: Project = False,
) -> Report:
    """Make a profile the current one: commands that are given no cluster take it."""
    if (name is None) == (not none):
        raise UsageError("give either NAME or --none")
    home = klog_home() / HOME_FILE
    path = Path.cwd() / PROJECT_FILE if project else home
    if name is not None:
        chosen = _profiles().named(name, "argument NAME")
        if not project and name not in profiles.read_file(home).by_name:
            raise Refused(
                f"profile {name!r} is in {chosen.file}, and other folders do not know it",
                hint=f"klog profile use {name} --project makes it the one of this project",
            )
        if project and chosen.file != home:
            path = chosen.file  # a nearer file would hide the profile
    profiles.use(path, name)
    in_use = _in_use()
    if in_use != name:
        why = (
            f"{PROFILE_VARIABLE} is set" if os.environ.get(PROFILE_VARIABLE) else "a nearer file or address goes first"
        )
        invocation.warn(f"commands take {f'profile {in_use}' if in_use else 'another cluster'} here: {why}")
    return invocation.report(profiles.rows(_profiles(), in_use))


@profile.command("remove", rows=ROW, connects=False)
def remove(invocation: Invocation, name: Name) -> Report:
    """Remove a profile from its file, and show it for the last time. The cluster is not touched."""
    gone = _profiles().named(name, "argument NAME")
    shown = profiles.row(gone, _in_use())
    profiles.remove(gone)
    return invocation.report([shown], footer=f"removed from {gone.file}")


@profile.command("test", rows="klog.admin.profiles:ProfileTest", connects=False)
async def test(
    invocation: Invocation,
    names: list[str] | None = argument("NAME", "Profiles; all if none is given.", autocompletion=profile_names),
) -> Report:
    """Connect to the clusters of profiles: whether they answer, in what time, and whether their ids are as written."""
    found = _profiles()
    chosen = [found.named(name, "argument NAME") for name in names or sorted(found.by_name)]
    return invocation.report(await asyncio.gather(*(_tested(invocation, one) for one in chosen)))


async def _tested(invocation: Invocation, one: Profile) -> Any:
    began_s = time.perf_counter()
    try:
        async with _connected(invocation, profile=one.name, client_config=None) as cluster:
            metadata = await cluster.metadata()
            elapsed_ms = (time.perf_counter() - began_s) * 1000
            return ProfileTest(
                one.name, cluster.bootstrap, await cluster.cluster_id(), len(metadata.brokers), round(elapsed_ms)
            )
    except (KlogError, OSError) as error:
        code = error.code if isinstance(error, KlogError) else type(error).__name__
        return ProfileTest(one.name, one.bootstrap, None, None, None, error=code, message=str(error))


def _written(invocation: Invocation, name: str) -> Report:
    written = _profiles().named(name, "argument NAME")
    return invocation.report([profiles.row(written, _in_use())], footer=f"written to {written.file}")
