"""klog's own request about permissions, for what Kafka has no words: who may do what, and which rule decides that.

Declared by `klog.protocol.schema`; the numbers are Kafka's, as in DescribeAcls.
"""

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32

from klog.protocol.apis import ApiKey
from klog.protocol.schema import Request, Response


class CheckPermissionRequest(Request, key=ApiKey.CHECK_PERMISSION):
    """``principal`` is ``User:alice``; ``host`` the address that it comes from. ``*``: ACLs on hosts do not count."""

    principal: str
    host: str
    operation: i32
    resource_type: i32
    resource_name: str


class CheckPermissionResponse(Response, key=ApiKey.CHECK_PERMISSION):
    """``rule``: what decides: an ACL, ``super.users``, ``allow.everyone.if.no.acl.found``, or that no ACL allows it."""

    error_code: ErrorCode
    error_message: str | None
    is_allowed: bool
    rule: str
