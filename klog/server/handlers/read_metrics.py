"""ReadMetrics (klog's own, 10009): this broker's metrics, whether or not it has a metrics port.

Behaviour
    The metrics whose names match one of the request's patterns, in the order of their names and labels. A thread reads
    them, as a scrape does. An answer has SAMPLES_MAX samples or SAMPLES_BYTES_MAX bytes of them at most, and says where
    the next one begins; the numbers of two answers are not of one moment.
"""

from __future__ import annotations

import bisect
import fnmatch
import functools
import re
import time
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from klog.errors import InvalidRequest
from klog.metrics import Metric, Sample, readings
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.look_ups import LookUp
from klog.server.metrics_table import METRICS, OF_PROCESS, Measured
from klog.server.parts import Parts
from klog.storage.lookup_budget import LookupBudget

SAMPLES_MAX: Final = 2_000
SAMPLES_BYTES_MAX: Final = 256 * 1024
PATTERNS_MAX: Final = 32
PATTERN_LENGTH_MAX: Final = 256

_IN_ORDER: Final = sorted((*METRICS, *OF_PROCESS), key=lambda metric: metric.name)
_NAMES: Final = [metric.name for metric in _IN_ORDER]
_PARTS: Final = ("", "_count", "_sum")
"""A summary is found by its own name and by those of its parts."""


class Page(NamedTuple):
    """Samples, and the last one's metric name and label values, behind which the next page begins."""

    samples: list[dict[str, Any]]
    next_name: str | None = None
    next_labels: tuple[str, ...] = ()


@handles(ApiKey.READ_METRICS, 0, 0, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    asked = request.entity
    if len(asked.patterns) > PATTERNS_MAX or any(len(one) > PATTERN_LENGTH_MAX for one in asked.patterns):
        raise InvalidRequest(f"more than {PATTERNS_MAX} patterns, or one of more than {PATTERN_LENGTH_MAX} letters")
    read = functools.partial(read_page, parts, asked.patterns, asked.after_name, tuple(asked.after_labels))
    with LookUp(parts.runtime.executors, request.connection) as look_up:
        found = await look_up.run("", read)
    return {
        "broker_id": parts.identity.broker_id,
        "now_ms": time.time_ns() // 1_000_000,
        "samples": found.samples,
        "next_name": found.next_name,
        "next_labels": found.next_labels,
    }


def read_page(
    measured: Measured, patterns: Sequence[str], after: str, after_labels: tuple[str, ...], budget: LookupBudget
) -> Page:
    """The next page. Runs in a thread."""
    samples: list[dict[str, Any]] = []
    size = 0
    last: tuple[str, tuple[str, ...]] | None = None
    for metric, sample in _from(measured, patterns, after, after_labels, budget):
        if last is not None and (len(samples) >= SAMPLES_MAX or size >= SAMPLES_BYTES_MAX):
            return Page(samples, *last)
        for name, labels, value in readings(metric, sample):
            told = [{"name": label, "value": text} for label, text in labels.items()]
            samples.append({"name": name, "kind": metric.kind, "labels": told, "value": float(value)})
            size += 64 + len(name) + sum(len(label) + len(text) for label, text in labels.items())
        last = metric.name, sample[0]
    return Page(samples)


def _from(
    measured: Measured, patterns: Sequence[str], after: str, after_labels: tuple[str, ...], budget: LookupBudget
) -> Iterator[tuple[Metric[Measured], Sample]]:
    """The wanted samples behind that place, in order."""
    matches = re.compile("|".join(fnmatch.translate(one) for one in patterns)).match if patterns else None
    for metric in _IN_ORDER[bisect.bisect_left(_NAMES, after) :]:
        if matches is not None and not any(matches(metric.name + part) for part in _PARTS):
            continue
        budget.spend()
        for sample in sorted(metric.read(measured), key=itemgetter(0)):
            if metric.name != after or sample[0] > after_labels:
                yield metric, sample
