"""``klog quota``: what one client may take."""

from __future__ import annotations

from typing import Annotated

from klog.cli.command import Noun
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.cli.name_values import settings
from klog.errors import InvalidRequest, UsageError
from klog.names import counted
from klog.render import Report
from klog.security.quotas import DEFAULT, DEFAULT_NODE, Entity, check_entity

ROW = "klog.admin.quotas:QuotaRow"

quota = Noun("quota", "Quotas of users, client ids and addresses: list, set, remove.")

User = Annotated[str | None, flag("--user NAME", "The user; ANONYMOUS without a login.")]
Client = Annotated[str | None, flag("--client CLIENT-ID", "The client id.")]
DefaultUser = Annotated[bool, flag("--default-user", "Each user without a quota of its own.")]
DefaultClient = Annotated[bool, flag("--default-client", "Each client id without a quota of its own.")]
Ip = Annotated[str | None, flag("--ip ADDRESS", "The IP address that connections come from.")]
DefaultIp = Annotated[bool, flag("--default-ip", "Each address without a quota of its own.")]


@quota.command("list", rows=ROW)
async def list_quotas(
    invocation: Invocation,
    user: User = None,
    client: Client = None,
    default_user: DefaultUser = False,
    default_client: DefaultClient = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    applied: bool = flag("--applied", "What applies to a client of --user: values, whose they are, who shares them."),
) -> Report:
    """List the quotas, all or those of a user, of a client id, of both, or of an address.

    With --applied, one row per kind of quota: the one that limits a client of this user, with this client id and
    address if given; `-`: no limit. Rates are bytes per second, percent of the broker's event loop, partitions created
    and deleted per second, and new connections per second.
    """
    from klog.admin import quotas

    if applied:
        if user is None or default_user or default_client or default_ip:
            raise UsageError("--applied is of one client: --user NAME, and of its --client CLIENT-ID or --ip ADDRESS")
        address = None if ip is None else _checked(_names((None, False), (None, False), (ip, False))).ip
        name, cluster = user.removeprefix("User:"), await invocation.cluster()
        found = await quotas.applied_quotas(cluster, name, client or "", address)
        return Report(invocation.command, quotas.AppliedQuota, found)
    wanted = _names((user, default_user), (client, default_client), (ip, default_ip))
    if wanted.ip is not None:
        wanted = _checked(wanted)
    return invocation.report(await quotas.list_quotas(await invocation.cluster(), wanted))


@quota.command("set", rows=ROW, changes=True, dry_run=True, acts=True)
async def set_quotas(
    invocation: Invocation,
    given: list[str] = argument(
        "QUOTA=VALUE",
        "producer_byte_rate=20MB/s, consumer_byte_rate=20MB/s, request_percentage=50, "
        "controller_mutation_rate=10/s; of an address connection_creation_rate=20/s.",
        ...,
    ),
    user: User = None,
    client: Client = None,
    default_user: DefaultUser = False,
    default_client: DefaultClient = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
) -> Report:
    """Set quotas of a user, of a client id, of a client id of a user, or of an address.

    The most specific one counts: a user with a client id, then users, then client ids; a default last at each step.
    All clients of a user share its quota. It holds at each broker by itself, soon after the change. A connection beyond
    the quota of its address is closed, after a second at most.
    """
    from klog.admin import quotas

    entity = _entity((user, default_user), (client, default_client), (ip, default_ip))
    changes = {
        (key := quotas.quota_named(name)): quotas.quota_value(key, value) for name, value in settings(given).items()
    }
    cluster = await invocation.cluster()
    if invocation.shared.dry_run:
        planned = await quotas.set_quotas(cluster, entity, changes, validate_only=True)
        invocation.end_dry_run(f"set {counted(len(changes), 'quota')} of {entity}", invocation.report([planned]))
    return invocation.report([await quotas.set_quotas(cluster, entity, changes)])


@quota.command("remove", rows=ROW, changes=True, asks=True, acts=True)
async def remove(
    invocation: Invocation,
    names: list[str] | None = argument("QUOTA", "Only these quotas; all if not given."),
    user: User = None,
    client: Client = None,
    default_user: DefaultUser = False,
    default_client: DefaultClient = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
) -> Report:
    """Remove quotas, and show what is left. `klog undo` brings them back. Exit 1 if one does not exist.

    Asks first on a protected cluster.
    """
    from klog.admin import quotas

    entity = _entity((user, default_user), (client, default_client), (ip, default_ip))
    keys = list(dict.fromkeys(quotas.quota_named(name) for name in names or ()))
    cluster = await invocation.cluster()
    left = await quotas.remove_quotas(cluster, entity, keys, validate_only=True)
    what = ", ".join(keys) or "all quotas"
    invocation.confirm(f"Remove {what} of {entity}", invocation.report([left]), everywhere=False)
    return invocation.report([await quotas.remove_quotas(cluster, entity, keys)])


Given = tuple[str | None, bool]
"""A name, and whether the default is meant."""


def _entity(*given: Given) -> Entity:
    return _checked(_names(*given))


def _checked(entity: Entity) -> Entity:
    try:
        return check_entity(entity)
    except InvalidRequest as error:
        hint = "--user NAME, --client CLIENT-ID, or both; or --ip ADDRESS; or the defaults"
        raise UsageError(error.message, hint=hint) from None


def _names(*given: Given) -> Entity:
    """Of a user, a client id and an address."""
    for kind, (name, is_default) in zip(Entity._fields, given, strict=True):
        if name is not None and is_default:
            raise UsageError(f"--{kind} and --default-{kind} exclude each other")
        if name == DEFAULT_NODE:
            raise UsageError(f"--{kind} {DEFAULT_NODE}: this is how the default is shown", hint=f"--default-{kind}")
    return Entity(*(DEFAULT if is_default else name for name, is_default in given))
