"""``klog security``: close a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from klog.admin import closing, security_files
from klog.admin.local_state import CLIENT_SETTINGS
from klog.cli.command import Noun
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.cli.progress import Done, progress
from klog.cli.target import klog_home
from klog.names import counted
from klog.render import Report

Folder = Annotated[Path | None, flag("--dir DIR", "The folder of the files; `security` in ~/.klog if not given.")]

security = Noun("security", "Close a cluster: certificates, users, permissions.")


@security.command("init", rows="klog.admin.security_files:SecurityFileRow", connects=False)
def init(
    invocation: Invocation,
    directory: Folder = None,
    hosts: list[str] | None = flag("--host NAME", "Name or address of a server's machine; several times for several."),
    administrator: str = flag("--admin NAME", "Name of the first administrator.", "admin"),
    zookeeper_tls: bool = flag("--zookeeper-tls", "Brokers and clients reach ZooKeeper by TLS, too."),
) -> Report:
    """Write all that closes a cluster: an authority, certificates, settings, and the first administrator.

    Brokers that start with the settings take encrypted connections of known users only, and every user but the
    administrator needs permissions. What brokers write into ZooKeeper no other client may change. `klog up --secure`
    does all of it on this machine. On several machines copy broker.pem, ca.pem and broker.properties to each;
    docs/security.md shows every step. With --zookeeper-tls ZooKeeper needs `klog zookeeper start --tls DIR`.
    """
    folder = directory or klog_home() / "security"
    rows = security_files.init(folder, hosts or (), administrator, zookeeper_tls=zookeeper_tls)
    return invocation.report(
        rows, footer="next: `klog security users -z HOST:PORT`, then brokers with broker.properties"
    )


Settings = Annotated[Path, argument("FILE", "The file that the broker is started with (--config).", dir_okay=False)]


@security.command("add", rows="klog.admin.closing:SettingWritten", connects=False)
def add(
    invocation: Invocation,
    file: Settings,
    port: int = flag("--port PORT", "The secured listener's port.", ..., min=1, max=65535),
    directory: Folder = None,
) -> Report:
    """Write a secured listener into a broker's settings, beside the open ones.

    The first step to close a running cluster: run it on each machine, then `klog broker restart --all`. From then on
    the brokers talk to one another over the secured listener, and clients can move to it one by one. Clients of an
    open listener may do everything, as before; users of the secured one need permissions. --dir is the folder of
    `klog security init`. The settings are a block at the end of FILE; without it the broker is as it was.
    """
    rows = closing.add(file, directory or klog_home() / "security", port)
    return invocation.report(rows, footer="next: the same for the other brokers, then `klog broker restart --all`")


@security.command("close", rows="klog.admin.closing:SettingWritten", connects=False)
def close(invocation: Invocation, file: Settings, directory: Folder = None) -> Report:
    """Take the open listeners out of a broker's settings: the last step to close a running cluster.

    Only what `klog security add` wrote into FILE is left. Run it on each machine, then `klog broker restart --all` as
    the administrator. Clients of the open listeners are refused from then on.
    """
    rows = closing.close(file, directory or klog_home() / "security")
    return invocation.report(rows, footer="next: the same for the other brokers, then `klog broker restart --all`")


@security.command("users", rows="klog.admin.users:UserRow", changes=True)
async def users(invocation: Invocation, directory: Folder = None) -> Report:
    """Write the first users, the brokers' and the administrator's, into ZooKeeper, before the first broker starts.

    Users who have a password already keep it. `klog user` manages all others. The folder's client.properties say how to
    come into ZooKeeper, unless --client-config does. The ZooKeeper of a new cluster, or its chroot, is closed then.
    """
    import asyncio

    from klog.admin import users as users_of
    from klog.admin import znode_acls
    from klog.client.client_config import read_client_config

    folder = directory or klog_home() / "security"
    if invocation.client_config is None and (folder / CLIENT_SETTINGS).exists():
        found = read_client_config(folder / CLIENT_SETTINGS)
        invocation.client_config = replace(
            found, security=None
        )  # brokers that are asked for ZooKeeper's address are open
    named = invocation.shared.zookeeper is not None
    session = await (invocation.empty_zookeeper() if named else invocation.zookeeper())
    passwords = security_files.passwords(folder)
    await asyncio.to_thread(znode_acls.begin, session)
    return invocation.report(await asyncio.to_thread(users_of.write_first, session, passwords))


@security.command("zookeeper", rows="klog.admin.znode_acls:ZnodeAclRow", asks=True, changes=True)
async def zookeeper(
    invocation: Invocation,
    open_again: bool = flag("--open", "Open the nodes again: everybody may do everything."),
    force: bool = flag("--force", "Also if live brokers or consumers would be locked out."),
) -> Report:
    """Close the nodes of a cluster in ZooKeeper: its owner alone may write them, and read credentials.

    Needs the owner's credentials, which `klog security init` writes into client.properties. Brokers must have them
    before, with zookeeper.set.acl=true: docs/security.md has the rolling restart. Can be killed at any moment and
    repeated; the last walk over all nodes finds nothing to change. Asks first, with the number of nodes.
    """
    import asyncio

    from klog.admin import znode_acls

    session = await invocation.zookeeper()
    owner = await asyncio.to_thread(znode_acls.owner_of, session)
    wanted = None if open_again else owner
    planned = znode_acls.Walks(session, wanted, dry_run=True)
    with progress(invocation, lambda: Done(planned.seen, None), unit="znodes"):
        plan = await asyncio.to_thread(planned.run)
    if planned.others:
        invocation.say(f"not klog's, and left as they are: {', '.join(planned.others)}")
    if not any(row.changed for row in plan):
        return invocation.report(plan, footer=f"all are {'open' if open_again else 'closed'} already")
    if not open_again and not force:
        await asyncio.to_thread(znode_acls.check_ready, session, owner)
    count = counted(sum(row.changed for row in plan), "znode")
    invocation.confirm(f"{'Open' if open_again else 'Close'} {count} in ZooKeeper", invocation.report(plan))
    walks = znode_acls.Walks(session, wanted)
    with progress(invocation, lambda: Done(walks.seen, None), unit="znodes"):
        rows = await asyncio.to_thread(walks.run)
    left = sum(row.left for row in rows)
    if left:
        return invocation.report(
            rows,
            failed=True,
            footer=f"{counted(left, 'znode')} had to be changed again and again: a client makes others meanwhile, with "
            f"zookeeper.set.acl={'true' if open_again else 'false'}",
        )
    done = f"{counted(sum(row.changed for row in rows), 'znode')} changed, none left"
    return invocation.report(rows, footer=done)
