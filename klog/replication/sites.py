"""Where brokers run: what fails together. A host is in a rack; both are names, and "" is an unknown one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Site(NamedTuple):
    """A broker's rack, and the host that it is registered with.

    Brokers of one host are those with the same registered name: processes of `klog broker start --processes`, or
    brokers started side by side.
    """

    rack: str = ""
    host: str = ""


def counted(sites: Mapping[int, Site]) -> dict[int, Site]:
    """The sites by which replicas are spread: racks count only when every broker has one, hosts likewise."""
    racks = all(site.rack for site in sites.values())
    hosts = all(site.host for site in sites.values())
    return {one: Site(site.rack if racks else "", site.host if hosts else "") for one, site in sites.items()}
