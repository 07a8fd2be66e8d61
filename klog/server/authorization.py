"""The parts that check permissions, if ``authorizer.class.name`` is set."""

from __future__ import annotations

from typing import NamedTuple

from klog.errors import InvalidConfig
from klog.security.authorizer import Authorizer, parse_super_users
from klog.server.access import Access
from klog.server.acl_keeper import AclKeeper
from klog.server.denials import Denials
from klog.server.image import ClusterImage
from klog.server.runtime import Runtime


class Authorization(NamedTuple):
    """Both None if everybody may do everything."""

    access: Access | None = None
    acl_keeper: AclKeeper | None = None

    @classmethod
    def of(cls, runtime: Runtime, image: ClusterImage) -> Authorization:
        """From the broker's settings. Raises InvalidConfig."""
        config = runtime.config
        if config["authorizer.class.name"] is None:
            return cls()
        if config.integer("schema.registry.port"):
            raise InvalidConfig(
                "schema.registry.port: the registry over HTTP knows no users, and authorizer.class.name is set",
                hint="`klog schema serve` serves the registry with a user's own permissions",
            )
        authorizer = Authorizer(
            parse_super_users(str(config["super.users"] or "")),
            allow_without_acl=config.flag("allow.everyone.if.no.acl.found"),
        )
        denials = Denials(runtime.tell_facts, runtime.loop.time, runtime.measures)
        access = Access(authorizer, image, denials, creates_topics=config.flag("auto.create.topics.enable"))
        return cls(access, AclKeeper(runtime, authorizer))

    async def start(self) -> None:
        """Read the ACLs, and watch them from now on."""
        if self.acl_keeper is not None:
            await self.acl_keeper.start()
