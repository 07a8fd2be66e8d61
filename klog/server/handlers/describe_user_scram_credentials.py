"""DescribeUserScramCredentials: v0 (KIP-554): which mechanisms the users have credentials for, and their iterations.

Behaviour
    No users asked for: all. RESOURCE_NOT_FOUND for a user without credentials, DUPLICATE_RESOURCE for one named twice.
    Neither salts nor keys are shown. Users that are named, up to 100, are read in ZooKeeper first, if it answers: this
    broker then knows what any broker has written of them.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Final

from klog.coordination.scram_credentials import is_possible
from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.security.errors import DuplicateResource, ResourceNotFound
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.parts import Parts

READ_MAX: Final = 100


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0)
async def handle(request: Request, parts: Parts) -> Answer:
    await parts.credentials.load()
    asked = [one.name for one in request.entity.users or ()]
    if asked:
        with contextlib.suppress(KlogError):  # ZooKeeper is away: answer from memory
            await parts.credentials.catch_up(sorted({name for name in asked if is_possible(name)})[:READ_MAX])
    known = parts.credentials.users()
    results = []
    for name, times in Counter(asked or sorted(known)).items():
        error: KlogError | None = None
        if times > 1:
            error = DuplicateResource(f"user {name!r} is named {times} times")
        elif name not in known:
            error = ResourceNotFound(f"user {name!r} has no SCRAM credentials")
        found = {} if error is not None else known[name]
        shown = [{"mechanism": mechanism.value, "iterations": one.iterations} for mechanism, one in found.items()]
        results.append({"user": name, **error_fields(error), "credential_infos": shown})
    return {**error_fields(None), "results": results}
