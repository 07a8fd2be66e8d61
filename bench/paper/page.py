"""``docs/paper.md``: the results in words. Each number comes from the record, and each verdict is decided by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bench.paper import published
from bench.paper.record import Line, Reason, Record

PER_S = "messages/s"


def page(record: Record) -> str:
    """The whole page."""
    parts = [
        _introduction(record),
        _figures(record),
        _reasons(record),
        _verdicts(record),
        _how(record),
    ]
    return "\n\n".join(part for part in parts if part).rstrip() + "\n"


def _introduction(record: Record) -> str:
    machine = ", ".join(f"{name}: {value}" for name, value in record.machine.items())
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    left_out = "".join(f"\n- **Left out**: {one}" for one in record.left_out)
    return f"""# The paper's experiment, today

Section 5 of {published.SOURCE}, run again by
`scripts/paper` on {record.date} at commit `{record.commit}`: producers of {record.messages:,} messages of
{published.VALUE_BYTES} bytes at a batch of 1 and of 50, and consumers of as many. A line ends after
{record.limit_s:g} s if it is not done by then. All of it took {record.took_s / 60:.0f} minutes. This page is
written by that program from `docs/paper/results.json`; nothing in it is typed by hand.

- **Systems**: {versions}. klog flushes to disk before it
  acknowledges, and so do ActiveMQ and RabbitMQ's quorum queues as their makers advise them; Kafka and RabbitMQ's
  classic queues leave that to the operating system.
- **Clients**: librdkafka (confluent-kafka) for klog and Kafka alike, klog's own `klog.Producer` and `klog.Consumer`,
  which are the paper's interface, ActiveMQ's Java client and RabbitMQ's PerfTest. One producer or one consumer at a
  time, one partition or queue.
- **Machine**: broker and client on one. {machine}.
  The paper had {published.MACHINES};
  its peers were {published.VERSIONS}.{left_out}

Absolute figures say little beside the paper's: processors are faster, and there is no network between client and
broker. Look at the ratios between systems, which were measured on the same machine in the same run."""


def _figures(record: Record) -> str:
    return f"""## Figure 4: producers

![Producers: messages a second over MB sent](paper/figure-4.svg)

{_lines_table(record, "4")}

{_ratios_of_producers(record)}

## Figure 5: consumers

![Consumers: messages a second over MB read](paper/figure-5.svg)

{_lines_table(record, "5")}

{_ratios_of_consumers(record)}

## Bytes on disk

A message's overhead is what the system's files grew by, less {published.VALUE_BYTES} bytes a message.

{_stored_table(record)}"""


def _lines_table(record: Record, figure: str) -> str:
    found = [one for one in record.lines if one.figure == figure]
    found.sort(key=lambda one: -one.rate)
    rows = [(one.name, PANEL[one.options], one.settings, _count(one.rate), _whole(one)) for one in found]
    if figure == "4":
        for batch, rate in published.PRODUCED.items():
            rows.append((f"*the paper's Kafka, batch {batch}*", "*paper*", "*no acknowledgements*", f"*{rate:,}*", ""))
    else:
        rows.append(("*the paper's Kafka*", "*paper*", "*pulls of 200 KB*", f"*{published.CONSUMED:,}*", ""))
    return _table(("system", "options", "settings", PER_S, "messages"), rows, right=(3, 4))


PANEL = {"advised": "advised", "paper": "the paper's"}


def _whole(line: Line) -> str:
    return f"{line.messages:,} in {line.seconds:.1f} s"


def _ratios_of_producers(record: Record) -> str:
    rows = []
    for batch in (1, 50):
        klog, kafka = record.best("4", "klog", batch), record.best("4", "kafka-4.1", batch)
        for other, rate in _others(record, "4"):
            rows.append(
                (
                    f"batch {batch}",
                    other,
                    _count(rate),
                    _times(klog, rate),
                    _times(kafka, rate),
                    _paper_ratio(other, batch),
                )
            )
    head = ("klog, Kafka", "against", PER_S, "klog", "Kafka", "the paper's Kafka")
    return "The best of each, whatever its options, against each queue's best:\n\n" + _table(
        head, rows, right=(2, 3, 4)
    )


def _paper_ratio(other: str, batch: int) -> str:
    if other.startswith("activemq"):
        return "orders of magnitude"
    return f"at least {published.PRODUCED_OVER_RABBITMQ} x" if batch == 1 else "more"


def _ratios_of_consumers(record: Record) -> str:
    klog, kafka = record.best("5", "klog"), record.best("5", "kafka-4.1")
    rows = [
        (other, _count(rate), _times(klog, rate), _times(kafka, rate), f"more than {published.CONSUMED_OVER_QUEUES} x")
        for other, rate in _others(record, "5")
    ]
    return _table(("against", PER_S, "klog", "Kafka", "the paper's Kafka"), rows, right=(1, 2, 3))


def _others(record: Record, figure: str) -> list[tuple[str, float]]:
    names = dict.fromkeys(one.system for one in record.lines if one.figure == figure and not _is_log(one.system))
    return [(name, rate) for name in names if (rate := record.best(figure, name)) is not None]


def _is_log(system: str) -> bool:
    return system == "klog" or system.startswith("kafka")


def _stored_table(record: Record) -> str:
    rows = [(one.system, one.how, f"{one.messages:,}", f"{one.overhead_bytes:.1f}") for one in record.stored]
    rows += [(f"*the paper's {name}*", "", "", f"*{size}*") for name, size in published.OVERHEAD_BYTES.items()]
    return _table(("system", "how", "messages", "overhead, bytes a message"), rows, right=(2, 3))


# --- Each reason alone ------------------------------------------------------------------------------------------------


def _reasons(record: Record) -> str:
    parts = ["## Each of the paper's reasons, alone", "One thing is switched; everything else stays as it is."]
    for key, title, text, write in REASONS:
        reason = record.reason(key)
        if reason.rows:
            parts += [f"### {title}", text, write(reason)]
    return "\n\n".join(parts) if len(parts) > 2 else ""


def _by_system(reason: Reason, switched: str, column: str = "messages_per_s") -> str:
    systems = list(dict.fromkeys(row["system"] for row in reason.rows))
    states = list(dict.fromkeys(row[switched] for row in reason.rows))
    rows = []
    for state in states:
        cells = [reason.value(column, **{"system": system, switched: state}) for system in systems]
        rows.append((str(state), *(_count(cell) for cell in cells)))
    return _table((switched, *(f"{system}, {PER_S}" for system in systems)), rows, right=range(1, 1 + len(systems)))


def _codec_table(reason: Reason) -> str:
    rows = [
        (
            row["system"],
            row["codec"],
            _count(row["messages_per_s"]),
            _count(row["read_messages_per_s"]),
            f"{row['stored_bytes']:.1f}",
        )
        for row in reason.rows
    ]
    return _table(
        ("system", "codec", f"produced, {PER_S}", f"read, {PER_S}", "bytes a message on disk"), rows, right=(2, 3, 4)
    )


def _sendfile_table(reason: Reason) -> str:
    rows = [
        (row["how"], f"{row['megabytes_per_s']:,.0f}", f"{row['cpu_s_per_gb']:.2f}", f"{row['copies']:g}")
        for row in reason.rows
    ]
    return _table(("the file is sent by", "MB/s", "processor, s a GB", "copies of a byte"), rows, right=(1, 2, 3))


def _cache_table(reason: Reason) -> str:
    rows = [
        (row["system"], row["cache"], _count(row["messages_per_s"]), f"{row['megabytes_per_s']:,.0f}")
        for row in reason.rows
    ]
    return _table(("system", "page cache", PER_S, "MB/s"), rows, right=(2, 3))


def _growing_table(reason: Reason) -> str:
    rows = [
        (row["system"], f"{row['log_gb']:g}", _count(row["messages_per_s"]), _count(row["read_messages_per_s"]))
        for row in reason.rows
    ]
    return _table(("system", "GB in the log", f"produced, {PER_S}", f"read, {PER_S}"), rows, right=(1, 2, 3))


def _state_table(reason: Reason) -> str:
    rows = [(row["system"], row["acknowledged"], _count(row["messages_per_s"])) for row in reason.rows]
    return _table(("system", "told to the broker", f"consumed, {PER_S}"), rows, right=(2,))


REASONS: Sequence[tuple[str, str, str, Callable[[Reason], str]]] = (
    (
        "acks",
        "The producer waits for no acknowledgement",
        "Batch 50, one producer. `idempotent`: librdkafka waits for each batch before it sends the next one.",
        lambda reason: _by_system(reason, "acknowledged"),
    ),
    ("batch", "Batches", "acks=all, one producer.", lambda reason: _by_system(reason, "batch")),
    (
        "sendfile",
        "sendfile",
        "One segment of the topic from the page cache to a socket, in a process of its own; the other end throws it\n"
        "away.",
        _sendfile_table,
    ),
    (
        "state",
        "State of each message",
        "A queue's broker keeps for each message whether it is acknowledged; a log's keeps one offset, which the\n"
        "consumer writes. The queues do not answer an acknowledgement, and no client waits for one; `klog.Consumer`\n"
        "waits for each commit.",
        _state_table,
    ),
    (
        "cache",
        "No cache of messages",
        "A broker keeps no message in its own memory. The same topic is read with its segments dropped from the\n"
        "operating system's page cache, and again with them there.",
        _cache_table,
    ),
    (
        "growing",
        "A log that grows",
        "acks=all, batch 50, to the end of the log; the consumer begins at its start.",
        _growing_table,
    ),
    (
        "codec",
        "Compression",
        "Lines as a web site's events are, batches of 200. About a fifth of each line is random and\n"
        "cannot be compressed.",
        _codec_table,
    ),
)


# --- What held --------------------------------------------------------------------------------------------------------


def _verdicts(record: Record) -> str:
    found = [one for one in _judged(record) if one is not None]
    return "## What held, and what did not\n\n" + "\n".join(f"- {one}" for one in found) if found else ""


def _judged(record: Record) -> Iterable[str | None]:
    klog_1, klog_50 = record.best("4", "klog", 1), record.best("4", "klog", 50)
    queues = dict(_others(record, "4"))
    activemq = queues.get("activemq")
    rabbit = max((rate for name, rate in queues.items() if name.startswith("rabbitmq")), default=None)
    yield _verdict(
        "Batches are most of it",
        _over(klog_50, klog_1),
        lambda times: times >= 4,
        f"klog at batch 50 does {_times(klog_50, klog_1)} what it does at batch 1; the paper's Kafka did 8 x.",
    )
    yield _verdict(
        "Orders of magnitude ahead of ActiveMQ",
        _over(klog_50, activemq),
        lambda times: times >= 10,
        f"klog at batch 50 is at {_times(klog_50, activemq)} of ActiveMQ, at batch 1 at {_times(klog_1, activemq)}.",
    )
    yield _verdict(
        "At least twice RabbitMQ at a batch of 1",
        _over(klog_1, rabbit),
        lambda times: times >= 2,
        f"klog without batches is at {_times(klog_1, rabbit)} of RabbitMQ's best, with batches of 50 at "
        f"{_times(klog_50, rabbit)}.",
    )
    klog_reads = record.best("5", "klog")
    others = dict(_others(record, "5"))
    fastest = max(others.values(), default=None)
    yield _verdict(
        "More than four times the queues' consumers",
        _over(klog_reads, fastest),
        lambda times: times > 4,
        f"klog's consumer is at {_times(klog_reads, fastest)} of the fastest queue's.",
    )
    yield from _judged_reasons(record)


def _judged_reasons(record: Record) -> Iterable[str | None]:
    stored = {(one.system, one.how): one.overhead_bytes for one in record.stored}
    log, alone = stored.get(("klog", "batch 50")), stored.get(("klog", "batch 1"))
    queue = min((size for (system, _), size in stored.items() if not _is_log(system)), default=None)
    yield _verdict(
        "Few bytes a message",
        _over(queue, log),
        lambda times: times >= 10,
        f"{log or 0:.1f} bytes in batches of 50 (the paper: 9), {alone or 0:.0f} in batches of one, where each message "
        f"pays for a batch's header; the leanest queue takes {queue or 0:.0f} (the paper's ActiveMQ: 144).",
    )
    acks = record.reason("acks")
    none, everyone = (acks.value("messages_per_s", system="klog", acknowledged=one) for one in ("none", "all"))
    yield _verdict(
        "No acknowledgements make producers fast",
        _over(none, everyone),
        lambda times: times >= 2,
        f"klog without acknowledgements is at {_times(none, everyone)} of klog that flushes and acknowledges "
        "everything: requests that overlap hide the wait.",
    )
    sendfile = record.reason("sendfile")
    zero, copying = (sendfile.value("megabytes_per_s", how=one) for one in ("sendfile", "read"))
    cpu_zero, cpu_copying = (sendfile.value("cpu_s_per_gb", how=one) for one in ("sendfile", "read"))
    yield _verdict(
        "sendfile saves copies",
        _over(cpu_copying, cpu_zero),
        lambda times: times >= 1.5,
        f"{_times(zero, copying)} the throughput, and read-and-send takes {_times(cpu_copying, cpu_zero)} the "
        "processor time.",
    )
    cache = record.reason("cache")
    warm, cold = (cache.value("messages_per_s", system="klog", cache=one) for one in ("warm", "cold"))
    yield _verdict(
        "The page cache is cache enough",
        _over(warm, cold),
        lambda times: times <= 10,
        f"A read from the page cache is at {_times(warm, cold)} of one from the disk, whatever ran before.",
    )
    yield _judged_growth(record.reason("growing"))
    yield _judged_state(record.reason("state"))


def _judged_growth(growing: Reason) -> str | None:
    rows = [row for row in growing.rows if row["system"] == "klog"]
    if len(rows) < 2:
        return None
    first, last = rows[0], rows[-1]
    produced, read = (_over(last[one], first[one]) for one in ("messages_per_s", "read_messages_per_s"))
    return _verdict(
        "The log's size costs nothing",
        None if produced is None or read is None else min(produced, read),
        lambda times: times >= 0.8,
        f"With {last['log_gb']:g} GB in it klog's producer is at {produced:.2f} x and its consumer at {read:.2f} x of "
        f"what they are with {first['log_gb']:g} GB.",
    )


def _judged_state(state: Reason) -> str | None:
    def rate(system: str, acknowledged: str) -> float | None:
        return state.value("messages_per_s", system=system, acknowledged=acknowledged)

    queues = {
        name: (rate(name, "1,000 at once"), rate(name, "each message"))
        for name in ("rabbitmq classic", "rabbitmq quorum")
    }
    gains = [gain for both in queues.values() if (gain := _over(*both)) is not None]
    seldom, each = (rate("klog", f"offset committed {one}") for one in ("every 5 s", "each message"))
    told = ", ".join(f"{name} by {_times(*both)}" for name, both in queues.items())
    return _verdict(
        "State of each message is what costs queues",
        max(gains, default=None),
        lambda times: times >= 2,
        f"Acknowledging 1,000 messages at once instead of each raises {told}. klog that commits its offset every 5 s "
        f"is at {_times(seldom, each)} of klog that waits for a commit after each message.",
    )


def _verdict(claim: str, ratio: float | None, holds: Callable[[float], bool], told: str) -> str | None:
    """None where the run has not measured it."""
    if ratio is None:
        return None
    return f"**{claim}: {'held' if holds(ratio) else 'did not hold'}.** {told}"


def _over(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _how(record: Record) -> str:
    return """## Run it

```
scripts/paper                       # all of it, a quarter of an hour; Maven for Kafka and ActiveMQ, rabbitmq-server
scripts/paper --messages 1000000    # fewer
scripts/paper --peers klog          # klog alone
scripts/paper --log-gb 64           # a log that grows further
```

What cannot be had is left out with a line that says why. Figures, this page and `results.json` go to `docs/`
(`--out DIR`: elsewhere); `scripts/paper --draw` writes them again from the results."""


# --- Words and tables -------------------------------------------------------------------------------------------------


def _count(rate: float | None) -> str:
    """Three figures: what is behind them is noise."""
    if rate is None:
        return "-"
    if rate < 1000:
        return f"{rate:.0f}"
    digits = len(str(round(rate)))
    return f"{round(rate, 3 - digits):,.0f}"


def _times(one: float | None, other: float | None) -> str:
    ratio = _over(one, other)
    if ratio is None:
        return "-"
    return f"{ratio:.2f} x" if ratio < 10 else f"{ratio:.0f} x"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    to_the_right = set(right)
    rule = ["---:" if number in to_the_right else "---" for number in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))
