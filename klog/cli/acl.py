"""``klog acl``: who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from klog.cli.command import Noun
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.errors import InvalidRequest, UsageError
from klog.names import counted
from klog.render import Report

if TYPE_CHECKING:
    from klog.security.permissions import Binding, Operation, Resource

acl = Noun("acl", "Permissions: list, add, remove, check.")

ROW = "klog.admin.acls:AclRow"
Principal = Annotated[str, argument("PRINCIPAL", "User:alice, or alice; User:* is everybody. Mind the shell's quotes.")]
Operations = Annotated[str, argument("OPERATION", "read, write, create, ...; several with commas; all.")]
ResourceName = Annotated[
    str, argument("RESOURCE", "topic:NAME, group:NAME, transactional-id:NAME or cluster; NAME * is all.")
]
Deny = Annotated[bool, flag("--deny", "Deny instead of allow; deny comes before allow.")]
Prefixed = Annotated[bool, flag("--prefixed", "NAME is the beginning of names.")]
Host = Annotated[str, flag("--host ADDRESS", "Only from this IP address.")]


@acl.command("list", rows=ROW)
async def list_acls(
    invocation: Invocation,
    resource: str | None = argument("RESOURCE", "Only what is about this: topic:NAME, group:NAME, cluster."),
    principal: str | None = flag("--principal PRINCIPAL", "Only of this principal: User:alice, alice."),
) -> list[Any]:
    """List the ACLs. Of a resource: also those with `*`, or with the beginning of its name."""
    from klog.admin import acls
    from klog.security.permissions import Filter, PatternType

    whose = None if principal is None else _principal(principal)
    chosen = Filter(principal=whose)
    if resource is not None:
        kind, name = _resource(resource)
        chosen = Filter(kind, name, PatternType.MATCH, whose)
    return [acls.row(one) for one in await acls.read_acls(await invocation.cluster(), chosen)]


@acl.command("add", rows=ROW, changes=True, asks=True, acts=True)
async def add(
    invocation: Invocation,
    principal: Principal,
    operation: Operations,
    resource: ResourceName,
    deny: Deny = False,
    prefixed: Prefixed = False,
    host: Host = "*",
) -> Report:
    """Allow, or deny, a principal an operation on a resource.

    Read, write, delete and alter include describe; alter-configs includes describe-configs. An ACL that exists already
    stays. Every broker that answers has the change when the command ends. On a protected cluster --deny asks first.
    """
    from klog.admin import acls
    from klog.security.permissions import Filter

    bindings = _bindings(principal, operation, resource, host, deny=deny, prefixed=prefixed)
    cluster, rows = await invocation.cluster(), [acls.row(one) for one in bindings]
    count = counted(len(bindings), "ACL")
    if invocation.shared.dry_run:
        there = set(await acls.read_acls(cluster, Filter()))
        known = sum(one in there for one in bindings)
        rest = f", {known:,} of which exist already" if known else ""
        invocation.end_dry_run(f"add {count}{rest}", invocation.report(rows))
    if deny:
        question = f"Deny {operation} on {resource} to {principal}"
        invocation.confirm(question, invocation.report(rows), everywhere=False)
    await acls.add_acls(cluster, bindings)
    return invocation.report(rows, footer=f"{count} added")


@acl.command("remove", rows=ROW, changes=True, asks=True, acts=True)
async def remove(
    invocation: Invocation,
    principal: Principal,
    operation: Operations,
    resource: ResourceName,
    deny: Deny = False,
    prefixed: Prefixed = False,
    host: Host = "*",
) -> Report:
    """Remove ACLs, named as for `klog acl add`. `klog undo` brings them back.

    Exit 1 if one of them does not exist; nothing is removed then. Asks first on a protected cluster.
    """
    from klog.admin import acls

    bindings = _bindings(principal, operation, resource, host, deny=deny, prefixed=prefixed)
    cluster = await invocation.cluster()
    await acls.refuse_missing(cluster, bindings)
    preview = invocation.report([acls.row(one) for one in bindings])
    invocation.confirm(f"Remove {counted(len(bindings), 'ACL')}", preview, everywhere=False)
    removed = await acls.remove_acls(cluster, [acls.filter_of(one) for one in bindings])
    return invocation.report([acls.row(one) for one in removed], footer=f"{counted(len(removed), 'ACL')} removed")


@acl.command("check", rows="klog.admin.acls:CheckRow")
async def check(
    invocation: Invocation, principal: Principal, operation: Operations, resource: ResourceName, host: Host = "*"
) -> Report:
    """Show whether a principal may do something, and which rule decides. Exit 1 if not.

    ACLs for single addresses count with --host only.
    """
    from klog.admin import acls

    whose, what, (chosen, *more) = _principal(principal), _resource(resource), _operations(operation)
    if more:
        raise UsageError(f"OPERATION {operation!r}: one operation is checked at a time")
    found = await acls.check(await invocation.cluster(), whose, chosen, what, host)
    return invocation.report([found], failed=not found.allowed)


def _bindings(principal: str, operation: str, resource: str, host: str, *, deny: bool, prefixed: bool) -> list[Binding]:
    from klog.security.permissions import Acl, Binding, Pattern, PatternType, Permission, check_binding

    kind, name = _resource(resource)
    pattern = Pattern(kind, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL)
    permission = Permission.DENY if deny else Permission.ALLOW
    whose = _principal(principal)
    try:
        return [
            check_binding(Binding(pattern, Acl(whose, host, one, permission))) for one in _operations(operation, kind)
        ]
    except InvalidRequest as error:
        raise UsageError(error.message) from None


def _principal(text: str) -> str:
    """``alice`` is ``User:alice``."""
    from klog.security.permissions import check_principal

    try:
        return check_principal(text if ":" in text else f"User:{text}")
    except InvalidRequest as error:
        raise UsageError(f"PRINCIPAL {text!r}: {error.message}") from None


def _resource(text: str) -> Resource:
    from klog.security.permissions import parse_resource

    try:
        return parse_resource(text)
    except ValueError:
        raise UsageError(
            f"RESOURCE {text!r}: expected topic:NAME, group:NAME, transactional-id:NAME or cluster",
            hint=f"a topic is topic:{text}" if text and ":" not in text else None,
        ) from None


def _operations(text: str, kind: Any = None) -> list[Operation]:
    """Each operation that is named; of ``kind``, where it is given, or all."""
    from klog.security.permissions import OPERATIONS, Operation, word_of_text

    found = []
    known = [Operation.ALL, *(OPERATIONS[kind] if kind is not None else [one for one in Operation if one > 2])]
    shown = ", ".join(one.word for one in known)
    for word in text.split(","):
        try:
            operation = word_of_text(Operation, word.strip())
        except ValueError:
            operation = Operation.ANY
        if operation not in known:
            about = "" if kind is None else f" on a {kind.word}"
            raise UsageError(f"OPERATION {word!r} is not an operation{about}: expected {shown}")
        found.append(operation)
    return list(dict.fromkeys(found))
