"""What a process measures of itself: numbers that are counted as things happen, and a table that names them.

Strategy
    On the path of a message there are additions to plain integers and nothing else: no lock, no library, no clock but
    for one request in `SAMPLE_ONE_IN`. Whatever can be asked of an object that is there anyway (how many partitions,
    how long a log) is not counted but read when the metrics are asked for: a `Metric` has a function for it.

Rules
    One thread writes a number. Any other thread may read it: an integer is read whole, and containers are copied in one
    step of the interpreter before they are walked.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

SAMPLE_ONE_IN: Final = 64
"""Of many requests of one kind one in so many is timed; of the first so many, each."""
RECENT_MAX: Final = 512
"""Quantiles are those of so many latest measurements; Kafka's reservoirs keep 1,028, the latest weighing most."""
QUANTILES: Final = (0.5, 0.95, 0.99, 0.999)

Source = TypeVar("Source")


class Timing:
    """How long something took, time and again. Written by one thread."""

    __slots__ = ("_recent", "count", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self._recent: deque[float] = deque(maxlen=RECENT_MAX)

    def took(self, ms: float) -> None:
        self.count += 1
        self.total_ms += ms
        self._recent.append(ms)

    def recent(self) -> list[float]:
        """The latest measurements. Any thread."""
        return list(self._recent)


class Times(NamedTuple):
    """A summary of measurements: what a scrape shows of one or more `Timing`."""

    measured: int
    total_ms: float
    quantiles: tuple[tuple[float, float], ...]
    """(quantile, milliseconds); empty where nothing has been measured."""


def times_of(timings: Iterable[Timing]) -> Times:
    """The sum of some timings. Any thread."""
    chosen = list(timings)
    recent = sorted(ms for one in chosen for ms in one.recent())
    last = len(recent) - 1
    quantiles = [(one, recent[min(math.ceil(one * len(recent)) - 1, last)]) for one in QUANTILES] if recent else []
    return Times(sum(one.count for one in chosen), sum(one.total_ms for one in chosen), tuple(quantiles))


@dataclass(slots=True, eq=False)
class RequestMeter:
    """Requests of one kind: how many, and how long some of them took."""

    count: int = 0
    total: Timing = field(default_factory=Timing)
    """From the whole frame to the filled answer."""
    local: Timing = field(default_factory=Timing)
    """Of that, in the handler."""
    remote: Timing = field(default_factory=Timing)
    """Of that, waiting for others: replicas, disks, bytes."""
    queued: Timing = field(default_factory=Timing)
    """Before that: from the arrival of its last bytes until its turn."""
    sent: Timing = field(default_factory=Timing)
    """After that: until the kernel has the whole answer, and those before it."""
    timed_from: int = 1
    """The count at which the next one is timed."""

    def choose_next(self) -> None:
        """One is timed now."""
        self.timed_from = self.count + (SAMPLE_ONE_IN if self.count >= SAMPLE_ONE_IN else 1)


@dataclass(slots=True, eq=False)
class TopicTraffic:
    """What went in and out of a topic's partitions at this broker, since it started."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    produces: int = 0
    """Partitions of produce requests, as Kafka counts them."""
    failed_produces: int = 0
    fetches: int = 0
    failed_fetches: int = 0

    def add(self, other: TopicTraffic) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """All topics' traffic. Belongs to the event loop; `total` may be asked from any thread."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self._gone = TopicTraffic()
        """Of deleted topics: a total never falls."""

    def of(self, topic: str) -> TopicTraffic:
        """A topic's numbers. For topics that are there: whatever a peer makes up must not be kept."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def refused(self, topic: str) -> TopicTraffic:
        """Where refused requests are counted: with the topic if it has any traffic, else only in the total."""
        return self.topics.get(topic, self._gone)

    def keep_only(self, topics: Collection[str]) -> None:
        """Forget the topics that are not among these."""
        for name in [name for name in self.topics if name not in topics]:
            self._gone.add(self.topics.pop(name))

    def total(self) -> TopicTraffic:
        total = TopicTraffic()
        total.add(self._gone)
        for one in list(self.topics.values()):
            total.add(one)
        return total


class Meters(Sized, Protocol):
    """Those that are remembered, and how many were forgotten too early. Any thread."""

    cut_short: int


@dataclass(slots=True, eq=False)
class Throttled:
    """Of one kind of quota: answers that told a client to wait, and for how long all together."""

    meters: Meters
    answers: int = 0
    seconds: float = 0.0

    def add(self, wait_s: float) -> None:
        self.answers += 1
        self.seconds += wait_s


class ThreadClock:
    """How long a thread has had a processor, by the thread's own clock: costs it nothing to be asked."""

    def __init__(self) -> None:
        """Of the thread that makes it."""
        self._clock = time.pthread_getcpuclockid(threading.get_ident())

    def cpu_seconds(self) -> float:
        """Any thread, as long as the measured one lives."""
        return time.clock_gettime(self._clock)


class Measures:
    """What a broker counts. Belongs to the event loop, which makes it."""

    def __init__(self) -> None:
        self.loop = ThreadClock()
        self.traffic = Traffic()
        self.denied = 0
        """Parts of requests that a principal had no permission for."""
        self.requests: dict[int, RequestMeter] = {}
        """By the key of the request."""
        self.throttled: dict[str, Throttled] = {}
        """By the quota."""
        self.elections = Timing()
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.group_commits = Timing()
        self.offsets_committed = 0
        """Of all those commits: partitions."""


Kind = Literal["counter", "gauge", "summary"]
Sample = tuple[tuple[str, ...], "float | Times"]
"""The labels' values, in the order of `Metric.labels` (fewer: without the rest), and the number."""


class Metric(NamedTuple, Generic[Source]):
    """One named number, or one for each set of labels.

    ``name`` is what Prometheus shows; a counter's ends in ``_total``. ``doc`` says what it counts, with its unit.
    ``read`` gives the samples and runs in the scraping thread: see the rules above.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str
    read: Callable[[Source], Iterable[Sample]]


class Reading(NamedTuple):
    """One number of a scrape, with all of its labels by name."""

    name: str
    labels: dict[str, str]
    value: float


def readings(metric: Metric[Source], sample: Sample) -> Iterator[Reading]:
    """What a scrape shows of a sample: one number, or a summary's quantiles, ``_count`` and ``_sum``."""
    values, number = sample
    labels = dict(zip(metric.labels, values, strict=False))
    if not isinstance(number, Times):
        yield Reading(metric.name, labels, number)
        return
    for quantile, ms in number.quantiles:
        yield Reading(metric.name, {**labels, "quantile": str(quantile)}, ms)
    yield Reading(f"{metric.name}_count", labels, number.measured)
    yield Reading(f"{metric.name}_sum", labels, number.total_ms)


def _declare(kind: Kind) -> Callable[..., Metric[Any]]:
    def declare(name: str, doc: str, read: Callable[[Any], Any], *labels: str) -> Metric[Any]:
        """``read`` gives the samples; of a metric without labels the number, or None for no sample."""

        def one(source: Any) -> Iterable[Sample]:
            number = read(source)
            return [] if number is None else [((), number)]

        return Metric(name, kind, labels, doc, read if labels else one)

    return declare


counter, gauge, summary = _declare("counter"), _declare("gauge"), _declare("summary")


def table(metrics: Sequence[Metric[Source]]) -> str:
    """The metrics as rows of a Markdown table, sorted by name."""
    rows = ["| metric | kind | labels | what it says |", "|---|---|---|---|"]
    for metric in sorted(metrics, key=lambda metric: metric.name):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.doc} |")
    return "\n".join(rows) + "\n"


@dataclass(slots=True, eq=False)
class Count:
    """How far long work is: set by the thread that does it, read by others. ``about``: what is done now."""

    done: int = 0
    total: int | None = None
    about: str = ""
