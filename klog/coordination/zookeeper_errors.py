"""kazoo's exceptions as klog's errors."""

from __future__ import annotations

from typing import Final

from kazoo import exceptions as kazoo_errors
from kazoo.handlers.threading import KazooTimeoutError

from klog.coordination.zookeeper_access import ZooKeeperAccess
from klog.errors import BadVersion, NodeExists, NoNode, SessionLost, ZooKeeperError
from klog.security.errors import NotAllowedByZooKeeper

SHOWN_CHARS_MAX: Final = 300
"""Of a request's paths, in an error."""


def translated(
    error: Exception, operation: str, path: str, address: str = "", access: ZooKeeperAccess | None = None
) -> ZooKeeperError:
    """The error of a request about a path; ``address`` and ``access``: of the session that sent it."""
    shown = path if len(path) <= SHOWN_CHARS_MAX else path[:SHOWN_CHARS_MAX] + "..."
    at = f"ZooKeeper{' at ' + address if address else ''}: {operation} {shown}"
    match error:
        case kazoo_errors.NoNodeError():
            return NoNode(f"{at}: no such node")
        case kazoo_errors.NodeExistsError():
            return NodeExists(f"{at}: the node exists")
        case kazoo_errors.BadVersionError():
            return BadVersion(f"{at}: the node is at another version")
        case kazoo_errors.NotEmptyError():
            return NodeExists(f"{at}: the node has children")
        case kazoo_errors.SessionExpiredError():
            return SessionLost(f"{at}: the session expired; what was asked may or may not have happened")
        case (
            kazoo_errors.ConnectionLoss()
            | kazoo_errors.ConnectionClosedError()
            | kazoo_errors.SessionMovedError()
            | kazoo_errors.OperationTimeoutError()
            | KazooTimeoutError()
        ):
            return SessionLost(f"{at}: no answer; what was asked may or may not have happened")
        case kazoo_errors.NoAuthError():
            return _not_allowed(at, access)
        case _:
            return ZooKeeperError(f"{at}: {type(error).__name__} {error}".rstrip())


def _not_allowed(at: str, access: ZooKeeperAccess | None) -> NotAllowedByZooKeeper:
    if access is None or access.username is None:
        return NotAllowedByZooKeeper(
            f"{at}: the ACL of the node does not allow it to a session without credentials",
            hint="zookeeper.username and zookeeper.password are missing: in the file of --config for a broker, in that "
            "of --client-config or a profile's client_config for a command, as keywords of klog.Consumer in a program",
        )
    return NotAllowedByZooKeeper(
        f"{at}: the ACL of the node does not allow it to {access.username!r}",
        hint="the user or its password is another one than the cluster's, or what it asks is not its own; "
        "`klog zk stat` shows who may do what",
    )
