"""Errors of authentication and authorization: a branch of `klog.errors`."""

from __future__ import annotations

from klog.errors import RequestError, ZooKeeperError


class UnsupportedSaslMechanism(RequestError):
    wire = 33
    code = "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslState(RequestError):
    """A request of SASL out of its order, or on a connection without SASL."""

    wire = 34
    code = "ILLEGAL_SASL_STATE"


class SaslAuthenticationFailed(RequestError):
    """The peer has not shown who it is. The reason is in the log of the side that judged."""

    wire = 58
    code = "SASL_AUTHENTICATION_FAILED"


class ResourceNotFound(RequestError):
    wire = 91
    code = "RESOURCE_NOT_FOUND"


class DuplicateResource(RequestError):
    wire = 92
    code = "DUPLICATE_RESOURCE"


class UnacceptableCredential(RequestError):
    wire = 93
    code = "UNACCEPTABLE_CREDENTIAL"


class TopicAuthorizationFailed(RequestError):
    wire = 29
    code = "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailed(RequestError):
    wire = 30
    code = "GROUP_AUTHORIZATION_FAILED"


class SecurityDisabled(RequestError):
    """The broker checks no permissions (authorizer.class.name)."""

    wire = 54
    code = "SECURITY_DISABLED"


class NotAllowedByZooKeeper(ZooKeeperError):
    """The ACL of a node in ZooKeeper does not let the session do what was asked."""

    code = "ZOOKEEPER_NOT_ALLOWED"
