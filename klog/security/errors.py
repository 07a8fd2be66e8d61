"""Errors of authentication and authorization: a branch of `klog.errors`."""

from __future__ import annotations

from klog.errors import RequestError, ZooKeeperError


class UnsupportedSaslMechanism(RequestError, wire=33):
    pass


class IllegalSaslState(RequestError, wire=34):
    """A request of SASL out of its order, or on a connection without SASL."""


class SaslAuthenticationFailed(RequestError, wire=58):
    """The peer has not shown who it is. The reason is in the log of the side that judged."""


class ResourceNotFound(RequestError, wire=91):
    pass


class DuplicateResource(RequestError, wire=92):
    pass


class UnacceptableCredential(RequestError, wire=93):
    pass


class TopicAuthorizationFailed(RequestError, wire=29):
    pass


class GroupAuthorizationFailed(RequestError, wire=30):
    pass


class SecurityDisabled(RequestError, wire=54):
    """The broker checks no permissions (authorizer.class.name)."""


class NotAllowedByZooKeeper(ZooKeeperError, code="ZOOKEEPER_NOT_ALLOWED"):
    """The ACL of a node in ZooKeeper does not let the session do what was asked."""
