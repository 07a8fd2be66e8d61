"""``klog user``: who can log in."""

from __future__ import annotations

import secrets
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from klog.cli import interrupt
from klog.cli.command import Noun
from klog.cli.error_report import Declined
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.errors import NoSuchThing, UsageError
from klog.render import Report
from klog.render.visible import is_terminal

ROW = "klog.admin.users:UserRow"
GENERATED_BYTES = 24
PASSWORD_BYTES_MAX = 1024

user = Noun("user", "Users: names and passwords (SCRAM).")

Name = Annotated[str, argument("NAME", "The user.")]
PasswordFile = Annotated[
    Path | None, flag("--password-file FILE", "File with the password in its first line; `-`: stdin.")
]
Generate = Annotated[bool, flag("--generate", "Draw a password, and show it once on stdout.")]


class Mechanism(StrEnum):
    """By Kafka's names."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


@user.command("list", rows=ROW)
async def list_users(invocation: Invocation) -> Report:
    """List the users that have a password."""
    from klog.admin import users

    return invocation.report(await users.list_users(await invocation.cluster()))


@user.command("add", rows=ROW, changes=True, dry_run=True, acts=True)
async def add(
    invocation: Invocation,
    name: Name,
    password_file: PasswordFile = None,
    generate: Generate = False,
    mechanisms: list[Mechanism] | None = flag("--mechanism NAME", "Mechanism of SCRAM; both if not given."),
    iterations: int = flag("--iterations N", "How often the password is stretched.", 4096),
) -> Report | int:
    """Add a user.

    The password comes from the terminal, a file or stdin, never from the command line. It is stretched here: brokers
    and ZooKeeper get a verifier. The user may do nothing until `klog acl add` permits it, unless the cluster is open.
    """
    from klog.admin import users
    from klog.security.scram import ScramMechanism

    password = _password(invocation, name, password_file, generate)
    chosen = [one for one in ScramMechanism if not mechanisms or one.label in mechanisms]
    cluster = await invocation.cluster()
    if password is None:
        planned = await users.preview_addition(cluster, name, chosen, iterations)
        invocation.end_dry_run(f"add user {name}", invocation.report([planned]))
    assert password is not None  # a dry run has ended
    row = await users.add_user(cluster, name, password, chosen, iterations)
    return _done(invocation, row, password if generate else None)


@user.command("passwd", rows=ROW, changes=True, asks=True)
async def passwd(
    invocation: Invocation, name: Name, password_file: PasswordFile = None, generate: Generate = False
) -> Report | int:
    """Change the password of a user. Open connections live on; new ones need the new password.

    The old one cannot be brought back. Asks first on a protected cluster.
    """
    from klog.admin import users

    password = _password(invocation, name, password_file, generate)
    cluster = await invocation.cluster()
    invocation.confirm(
        f"Change the password of user {name}",
        invocation.report([await users.known(cluster, name)]),
        consequence="the old one cannot be brought back",
        everywhere=False,
    )
    assert password is not None  # a dry run has ended
    row = await users.change_password(cluster, name, password)
    return _done(invocation, row, password if generate else None)


@user.command("delete", rows=ROW, asks=True, changes=True)
async def delete(invocation: Invocation, name: Name) -> Report:
    """Delete a user. Its permissions stay; `klog acl remove` takes them away."""
    from klog.admin import users

    cluster = await invocation.cluster()
    known = await users.list_users(cluster, [name])
    consequence = "its password cannot be brought back"
    invocation.confirm(f"Delete user {name}", invocation.report(known), consequence=consequence)
    return invocation.report([await users.delete_user(cluster, name)])


def _done(invocation: Invocation, row: object, generated: str | None) -> Report | int:
    if generated is None:
        return invocation.report([row])
    sys.stdout.write(generated + "\n")
    sys.stdout.flush()
    invocation.say("the password is on stdout, and nowhere else")
    return 0


def _password(invocation: Invocation, name: str, file: Path | None, generate: bool) -> str | None:
    """None in a dry run, which draws no password and asks for none; that of a file is checked all the same."""
    from klog.admin.users import check_password

    if generate and file is not None:
        raise UsageError("--generate and --password-file exclude each other")
    dry_run = invocation.shared.dry_run
    if generate:
        return None if dry_run else secrets.token_urlsafe(GENERATED_BYTES)
    if file is not None:
        password = _first_line(file)
    elif is_terminal(sys.stdin):
        if dry_run:
            return None
        password = _typed(name)
    else:
        raise UsageError(
            "a password is needed, but stdin is not a terminal", hint="--password-file FILE (`-`: stdin), or --generate"
        )
    check_password(password)
    return None if dry_run else password


def _first_line(file: Path) -> str:
    try:
        if str(file) == "-":
            line = sys.stdin.readline(PASSWORD_BYTES_MAX + 2)
        else:
            with file.open(encoding="utf-8-sig") as opened:
                line = opened.readline(PASSWORD_BYTES_MAX + 2)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise NoSuchThing(f"cannot read the password in {file}: {reason}") from None
    line = line.rstrip("\r\n")
    if len(line) > PASSWORD_BYTES_MAX:
        raise UsageError(f"the first line of {file} has more than {PASSWORD_BYTES_MAX} characters")
    return line


def _typed(name: str) -> str:
    """Twice, unseen."""
    with interrupt.raising():
        first = interrupt.typed_unseen(sys.stdin, f"Password for {name}: ")
        if not first:
            raise Declined("cancelled: no password")
        if interrupt.typed_unseen(sys.stdin, "Once more: ") != first:
            raise UsageError("the two passwords differ")
    return first.rstrip("\n")
