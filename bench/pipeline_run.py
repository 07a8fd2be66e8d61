"""One run of the pipeline: reads and exports by Spark, beside Spark's own Kafka connector where it can do the same."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import bars, decode_rate, follow
from bench.children import Child, ChildFailed, wait_until
from bench.cluster_run import at_most
from bench.commands import await_class_archive, klog_rows, klog_seconds
from bench.consumers_run import ACT_TIMEOUT_S, turned
from bench.copies import bootstrap_of
from bench.groups import topic_of
from bench.klog_system import Klog
from bench.maven import CONNECTOR_VERSION, PeerMissing, connector_jars
from bench.pipeline_load import fill
from bench.run import say
from bench.run_record import RunRecord, numbered
from bench.worker_memory import forget_peaks, highest_peak_mb, python_workers
from klog.client.positions import LATEST
from klog.client.raw_fetch import RawCluster
from klog.names import TopicPartition

PARTITIONS = 4
ORDER_S = 250.0
SPARK_S = 120.0
SMALL = 1000
"""Messages of a small export."""


@dataclass(frozen=True)
class PipelineSizes:
    """How much each part does; `smoke` is enough to see that it works, and no measurement."""

    messages: int = 2_000_000
    pace: int = 10_000
    follow_seconds: float = 20.0
    decoded: int = 1_000_000

    @classmethod
    def smoke(cls) -> PipelineSizes:
        return cls(20_000, 1000, 2.0, 20_000)


class PipelineBench:
    """Measures into a record. Everything it starts, and every byte it writes, is gone when `close` returns."""

    def __init__(
        self, record: RunRecord, folder: Path, sizes: PipelineSizes, rounds: int, names: Sequence[str]
    ) -> None:
        self.record = record
        self._folder = folder
        self._sizes = sizes
        self._rounds = rounds
        self._stack = contextlib.ExitStack()
        self._klog = Klog(bars.KLOG, folder / bars.KLOG / "one", {})
        self._stack.callback(self._klog.stop)
        self._klog.start("first")
        self._bootstrap = bootstrap_of(self._klog)
        record.versions[bars.KLOG] = self._klog.version
        self._systems = [bars.KLOG]
        self._jars = self._connector() if bars.SPARK_KAFKA in names else []
        self._session: Child | None = None
        self._pid = 0
        self._topic = ""
        self._messages = 0

    def close(self) -> None:
        self._stack.close()

    def _connector(self) -> list[Path]:
        try:
            jars = connector_jars()
        except PeerMissing as error:
            self.note(f"{bars.SPARK_KAFKA} is left out: {error}")
            return []
        self._systems.append(bars.SPARK_KAFKA)
        self.record.versions[bars.SPARK_KAFKA] = CONNECTOR_VERSION
        return jars

    # --- The session, started when it is first needed ---

    def _order(self, *words: object) -> tuple[float, int]:
        """Seconds, and rows (-1: not counted), of something done in the session."""
        if self._session is None:
            self._session = self._start()
        session, asked = self._session, len(self._session.events)
        session.say(" ".join(map(str, words)))
        wait_until(lambda: len(session.events) > asked, " ".join(map(str, words)), [session], ORDER_S)
        answer = session.events[-1].words
        if answer[0] != "done":
            raise ChildFailed(" ".join(answer))
        return float(answer[1]), int(answer[2])

    def _start(self) -> Child:
        out = self._folder / "out"
        out.mkdir(exist_ok=True)
        module, log = "bench.pipeline_session", self._folder / "session.log"
        began = time.monotonic()
        session = self._stack.enter_context(Child(module, self._bootstrap, out, *self._jars, log=log))
        self._pid = int(session.wait_for("ready", SPARK_S).words[1])
        say(f"Spark is up after {time.monotonic() - began:.1f} s")
        return session

    def _filled(self) -> tuple[str, int]:
        """The topic that everything reads, and its messages."""
        if not self._topic:
            self._topic = self._stack.enter_context(topic_of(self._bootstrap, PARTITIONS))
            self._messages = fill(self._bootstrap, self._topic, self._sizes.messages, PARTITIONS)
        return self._topic, self._messages

    def _rate(self, messages: int, *words: object) -> dict[str, float]:
        seconds, rows = self._order(*words)
        if rows not in (-1, messages):
            raise ChildFailed(f"{' '.join(map(str, words))}: {rows} of {messages} messages arrived")
        return {"messages_per_s": messages / seconds}

    # --- Notes ---

    def note(self, text: str) -> None:
        say(text)
        self.record.notes.append(text)

    @contextlib.contextmanager
    def noted(self, what: str, system: str = bars.KLOG) -> Iterator[None]:
        """What goes wrong is said, in the results too, and the rest is measured."""
        try:
            with at_most(ACT_TIMEOUT_S):
                yield
        except Exception as error:
            self.note(f"{what}: {system}: {error!r}")

    def _add(self, what: str, system: str, figures: dict[str, float]) -> None:
        self.record.add(what, system, figures)
        say(f"{what}: {system}: {', '.join(f'{name} {value:.4g}' for name, value in figures.items())}")

    # --- Parts ---

    def memory(self) -> None:
        """First, in a young session: a worker keeps what it once had, so ranges are read from short to long."""
        topic, _ = self._filled()
        one = TopicPartition(topic, 0)
        with RawCluster(self._bootstrap) as cluster:
            end = cluster.offsets({one: LATEST})[one]
            cuts = [cluster.batch_start(one, end // part) or end // part for part in (20, 4)]
        with self.noted(bars.READ_MEMORY):
            self._order("range", topic, cuts[0])  # what a worker has before it reads much: its libraries
            peaks = []
            for to in (*cuts, end):
                forget_peaks(python_workers(self._pid))
                self._order("range", topic, to)
                peaks.append(highest_peak_mb(python_workers(self._pid)))
            figures = {"short_worker_megabytes": peaks[0], "long_worker_megabytes": peaks[-1]}
            self._add(bars.READ_MEMORY, bars.KLOG, {"grown_megabytes": peaks[-1] - peaks[1], **figures})
        with self.noted(bars.DIRECT_MEMORY):
            self._order("direct", topic)
            self._add(
                bars.DIRECT_MEMORY, bars.KLOG, {"long_worker_megabytes": highest_peak_mb(python_workers(self._pid))}
            )

    def read(self) -> None:
        """To nowhere and to Parquet, in turns with the peer; and exports by tasks that write themselves."""
        topic, messages = self._filled()
        for system in self._systems:
            with self.noted("the messages that are read", system):
                _, rows = self._order("count", system, topic)
                if rows != messages:
                    self.note(f"{system} counts {rows} of {messages} messages")
        for number in numbered(self._rounds):
            for system in turned(self._systems, number):
                for what, order in ((bars.READ_NOOP, "noop"), (bars.READ_PARQUET, "parquet")):
                    with self.noted(what, system):
                        figures = self._rate(messages, order, system, topic)
                        if number >= 0:
                            self._add(what, system, figures)
            with self.noted(bars.EXPORT_DIRECT):
                figures = self._rate(messages, "direct", topic)
                if number >= 0:
                    self._add(bars.EXPORT_DIRECT, bars.KLOG, figures)

    def small(self) -> None:
        """Exports of a little in a session that runs, and the command where there is nothing."""
        root = self._folder / "small"
        with self.noted(bars.EXPORT_SMALL), topic_of(self._bootstrap, PARTITIONS) as topic:
            runs = numbered(self._rounds, warm=2)
            for number in runs:
                fill(self._bootstrap, topic, SMALL, PARTITIONS)
                seconds, rows = self._order("small", topic, root)
                if rows != SMALL:
                    raise ChildFailed(f"{rows} of {SMALL} messages were exported")
                if number >= 0:
                    self._add(bars.EXPORT_SMALL, bars.KLOG, {"seconds": seconds})
            self._cold(topic)
            for number in numbered(self._rounds):
                command = ("-B", self._bootstrap, "export", "run", topic, "--to", str(root))
                seconds = klog_seconds(self._klog.folder, *command)
                if number >= 0:
                    self._add(bars.EXPORT_NOTHING, bars.KLOG, {"seconds": seconds})
            if len(list(root.glob("data/*"))) != len(runs):
                self.note(f"{bars.EXPORT_NOTHING}: something was exported")

    def _cold(self, topic: str) -> None:
        """A process of its own each time, and a JVM; the first one finds no archive of classes, and writes it."""
        first_s = 0.0
        with self.noted(bars.EXPORT_COLD):
            for number in numbered(self._rounds):
                root = self._folder / f"cold-{number}"
                command = ("-B", self._bootstrap, "export", "run", topic, "--to", str(root))
                seconds = klog_seconds(self._klog.folder, *command, "--max-messages", str(SMALL // PARTITIONS))
                if not first_s:
                    first_s = seconds
                    await_class_archive(self._klog.folder)
                if number >= 0:
                    self._add(bars.EXPORT_COLD, bars.KLOG, {"seconds": seconds, "first_seconds": first_s})

    def follow(self) -> None:
        """A process of its own; the session of the others is idle meanwhile."""
        sizes = self._sizes
        for number in range(max(1, self._rounds // 2)):
            for what, every in ((bars.EXPORT_FOLLOW, "1s"), (bars.EXPORT_SOONER, "500ms")):
                with self.noted(what), topic_of(self._bootstrap, PARTITIONS) as topic:
                    folder = self._folder / f"follow-{every}-{number}"
                    folder.mkdir()
                    figures = follow.follow(
                        self._bootstrap, topic, folder, sizes.pace, sizes.follow_seconds, PARTITIONS, every
                    )
                    self._add(what, bars.KLOG, figures)

    def decode(self) -> None:
        """An export to typed columns, and what of it is decoding."""
        with self.noted(bars.EXPORT_DECODED), topic_of(self._bootstrap, PARTITIONS) as topic:
            schema = self._folder / "view.avsc"
            schema.write_text(json.dumps(decode_rate.SCHEMA))
            command = ("schema", "register", f"{topic}-value", str(schema), "-B", self._bootstrap)
            schema_id = klog_rows(self._klog.folder, *command)[0]["id"]
            values = decode_rate.framed_values(min(decode_rate.ROWS, self._sizes.decoded // PARTITIONS), schema_id)
            messages = fill(self._bootstrap, topic, self._sizes.decoded, PARTITIONS, values)
            for number in numbered(self._rounds):
                figures = self._rate(messages, "decoded", topic)
                if number >= 0:
                    self._add(bars.EXPORT_DECODED, bars.KLOG, figures)
        with self.noted(bars.DECODE):
            batches = decode_rate.framed_batches(self._sizes.decoded)
            for number in numbered(self._rounds):
                figures = decode_rate.measure(batches)
                if number >= 0:
                    self._add(bars.DECODE, bars.KLOG, figures)


PARTS: dict[str, Callable[[PipelineBench], None]] = {
    "memory": PipelineBench.memory,
    "read": PipelineBench.read,
    "small": PipelineBench.small,
    "follow": PipelineBench.follow,
    "decode": PipelineBench.decode,
}
"""By name, for a run of some of them; in this order, since memory is only measured well in a young session."""


def run(
    record: RunRecord,
    folder: Path,
    sizes: PipelineSizes,
    rounds: int,
    names: Sequence[str],
    parts: Sequence[str] = tuple(PARTS),
) -> None:
    """These parts of it, into the record."""
    bench = PipelineBench(record, folder, sizes, rounds, names)
    try:
        for part in parts:
            try:
                PARTS[part](bench)
            except Exception as error:
                bench.note(f"{part}: {error!r}")
    except KeyboardInterrupt:
        record.notes.append("the run was interrupted: what is missing was not measured")
    finally:
        bench.close()
        shutil.rmtree(folder, ignore_errors=True)
