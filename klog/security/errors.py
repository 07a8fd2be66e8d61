"""Errors of authentication and authorization: a branch of `klog.errors`."""

from __future__ import annotations

from klog.errors import RequestError, ZooKeeperError


class UnsupportedSaslMechanism(RequestError):
    wire = 33


class IllegalSaslState(RequestError):
    """A request of SASL out of its order, or on a connection without SASL."""

    wire = 34


class SaslAuthenticationFailed(RequestError):
    """The peer has not shown who it is. The reason is in the log of the side that judged."""

    wire = 58


class ResourceNotFound(RequestError):
    wire = 91


class DuplicateResource(RequestError):
    wire = 92


class UnacceptableCredential(RequestError):
    wire = 93


class TopicAuthorizationFailed(RequestError):
    wire = 29


class GroupAuthorizationFailed(RequestError):
    wire = 30


class SecurityDisabled(RequestError):
    """The broker checks no permissions (authorizer.class.name)."""

    wire = 54


class NotAllowedByZooKeeper(ZooKeeperError):
    """The ACL of a node in ZooKeeper does not let the session do what was asked."""

    code = "ZOOKEEPER_NOT_ALLOWED"
