"""CheckPermission (klog's own, 10028): what a principal may do, and which rule decides.

Behaviour
    By the ACLs and the settings of the broker that is asked. Where it checks no permissions, everything is allowed, and
    the rule says that.
"""

from __future__ import annotations

from typing import Final

from klog.errors import InvalidRequest
from klog.protocol.apis import ApiKey
from klog.security.authorizer import Decision
from klog.security.permissions import KINDS, Operation, Resource, ResourceType, check_principal, word_of_number
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts

OPEN: Final = Decision(True, "authorizer.class.name is not set")


@handles(ApiKey.CHECK_PERMISSION, 0, 0, may_refuse=True)
def handle(request: Request, parts: Parts) -> Answer:
    asked = request.entity
    kind = word_of_number(ResourceType, asked.resource_type)
    if kind not in KINDS:
        raise InvalidRequest(f"the type of resource must be one of {', '.join(one.title for one in KINDS)}")
    operation, resource = word_of_number(Operation, asked.operation), Resource(kind, asked.resource_name)
    principal = check_principal(asked.principal)
    decision = OPEN
    if parts.access is not None:
        decision = parts.access.authorizer.decide(principal, asked.host, operation, resource)
    return {"is_allowed": decision.allowed, "rule": decision.rule}
