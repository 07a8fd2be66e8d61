"""The rule of `klog status` about certificates: who listens with one that ends soon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from klog.admin.health.findings import CRITICAL, WARNING, Finding
from klog.admin.metrics import read_metrics
from klog.client.cluster import Cluster
from klog.errors import KlogError

WARNING_DAYS: Final = "klog.certificate.warning.days"
"""A broker's setting: from so many days before the end on."""
_METRIC: Final = "klog_certificate_days_left"


@dataclass(frozen=True, slots=True)
class CertificateFact:
    """What a broker shows at a listener; ``days_left`` is negative once it has expired."""

    broker: int
    listener: str
    days_left: float
    warning_days: int


async def certificates_of(cluster: Cluster, broker: int, warning_days: str | None) -> list[CertificateFact]:
    """Of the listeners that have one; none of a broker that does not say. ``warning_days``: the broker's setting."""
    if warning_days is None:  # an older broker, or Kafka's
        return []
    try:
        rows = await read_metrics(cluster, [_METRIC], broker=broker)
    except KlogError:
        return []
    return [
        CertificateFact(broker, one.labels.get("listener", ""), one.value, int(warning_days))
        for one in rows
        if one.value is not None and one.error is None
    ]


def ending(certificates: list[CertificateFact]) -> Iterator[Finding]:
    """One finding for a listener of a broker."""
    for one in certificates:
        if one.days_left >= one.warning_days:
            continue
        has_ended = one.days_left < 0
        found = f"ended {-one.days_left:,.0f} days ago" if has_ended else f"ends in {one.days_left:,.0f} days"
        yield Finding(
            CRITICAL if has_ended else WARNING,
            f"broker {one.broker}, listener {one.listener}",
            f"its certificate {found}: clients {'refuse' if has_ended else 'will refuse'} to connect",
            f"at least {one.warning_days} days ({WARNING_DAYS})",
            "replace the file at ssl.keystore.location: the broker takes it in within seconds",
            "certificate-ends",
        )
