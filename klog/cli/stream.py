"""``klog stream``: results that are computed from topics as messages come, and written once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from klog.cli import interrupt
from klog.cli.command import Noun
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.cli.name_values import pairs
from klog.cli.spark_flags import (
    SHIPPED,
    Catalog,
    Conf,
    DeployMode,
    Master,
    Shipped,
    TableFormat,
    TableName,
    show_or_run,
    table_choice,
)
from klog.cli.target import klog_home
from klog.cli.watching import check_watchable, rows_as_they_come
from klog.errors import CannotConnect, KlogError, NoSuchThing, TimedOut, UnknownTopicOrPartition, UsageError
from klog.export.follow import may_pass
from klog.names import counted
from klog.render import Report
from klog.spark.running.session import SparkTarget
from klog.spark.running.submit import submission
from klog.streams.folder import Description, StreamFolder, all_streams

if TYPE_CHECKING:
    from klog.client.cluster import Cluster

stream = Noun("stream", "Compute on topics as messages come, with Spark.")

STOP_WAIT_S = 60.0
"""A batch may be in hand."""
LOOK_EVERY_S = 0.1
PATIENCE_S = 60.0
"""How long a stream that goes on waits for its brokers, as for a batch."""

File = Annotated[Path | None, argument("FILE", "Program: .py with a function `stream`, or .sql with one query.")]
State = Annotated[Path | None, flag("--state DIR", "Folder with the streams and their checkpoints [~/.klog/streams].")]


@stream.command("run", rows="klog.streams.status:BatchRow", own_interrupt=True)
async def run(
    invocation: Invocation,
    file: File = None,
    sql: str | None = flag("-e --sql SQL", "A query, instead of a file."),
    sources: list[str] | None = flag(
        "--from TOPIC[:FORM]", "Input. FORM of the values: text, avro, avro=ID or json=COLUMNS."
    ),
    target: str | None = flag("--to topic:T|export:ROOT", "Output."),
    name: str | None = flag("--name NAME", "Name of the stream; that of its output if not given."),
    key: str | None = flag("--key COLUMN,...", "Columns of the messages' key; all columns are the value."),
    table: TableFormat = None,
    table_name: TableName = None,
    catalog: Catalog = None,
    late: str | None = flag("--late DURATION", "For SQL: how late rows may come, like '30 seconds'."),
    time: str = flag("--time COLUMN", "With --late: the column of the time.", "timestamp"),
    update: bool = flag("--update", "For SQL: write the result of a window each time that it has changed."),
    begin: Literal["start", "end"] = flag("--begin start|end", "Where the first run begins.", "start"),
    max_messages: int | None = flag("--max-messages N", "At most N messages per batch.", min=1),
    every: str | None = flag("--every DURATION", "Interval between batches, like '10 seconds'."),
    once: bool = flag("--once", "Exit after the messages that are there now."),
    master: Master = None,
    conf: Conf = None,
    state: State = None,
    submit: bool = flag(
        "--submit", "Print the spark-submit line that runs it on --master, and write the zip that it ships."
    ),
    deploy_mode: DeployMode = "client",
    shipped: Shipped = SHIPPED,
) -> Report | int | None:
    """Run a stream until it is stopped: one row per batch.

    It continues from its checkpoint, whatever it was that ended it. Each row of a result is in the output once: a batch
    that is repeated after a crash is not written again. What passes by itself (a broker away, a process of Spark
    killed) starts the stream again; Ctrl-C, SIGTERM and `klog stream stop` end it with exit code 0.

    In SQL and in the parameters of `stream` in Python, an input is called like its topic, with _ for dots and hyphens.

    With --submit the same stream is a line for `sh` or a scheduler: it goes on from its checkpoint in --state, which
    driver and executors reach. The program is sent along.
    """
    from klog.streams.program import Input, Late, Program, check_names, open_inputs, sink_of
    from klog.streams.streams import Streams, with_few_partitions

    check_watchable(invocation, watch=not submit, flag="a stream")
    for value, word in ((sources, "--from"), (target, "--to")):
        if not value:
            raise UsageError(f"{word} is missing", hint="klog stream run -e SQL --from TOPIC --to topic:TOPIC")
    assert sources is not None and target is not None
    program = Program.of(file, sql)
    chosen = table_choice(table, table_name, catalog)
    if program.sql is None and (late is not None or update):
        raise UsageError(f"{'--update' if update else '--late'} is for SQL; a program in Python says so itself")
    inputs = tuple(map(Input.parse, sources))
    check_names(inputs)
    into = target.removeprefix("topic:") if target.startswith("topic:") else None
    if into in {one.topic for one in inputs}:
        raise UsageError(f"--to {target}: this topic is read, so the stream would read its own results for ever")
    if submit:
        if master is None or state is None:
            raise UsageError(
                f"{'--master' if master is None else '--state'} is missing: --submit hands the stream to a cluster"
            )
        flags: dict[str, object] = {
            "-e": sql,
            "--to": target,
            "--name": name,
            "--state": state.absolute(),
            "--key": key,
            "--table": table,
            "--table-name": table_name,
            "--catalog": catalog,
            "--late": late,
            "--time": late and time,
            "--begin": begin,
            "--max-messages": max_messages,
            "--every": every,
        }
        made = submission(
            [
                *("-B", str(await invocation.bootstrap_servers()), "stream", "run"),
                *([] if file is None else [file.name if deploy_mode == "cluster" else str(file.absolute())]),
                *(word for one in sources for word in ("--from", one)),
                *(str(word) for name, value in flags.items() if value is not None for word in (name, value)),
                *(word for word, is_given in (("--update", update), ("--once", once)) if is_given),
            ],
            shipped,
            master=master,
            deploy_mode=deploy_mode,
            settings=dict(pairs(conf)),
            name=f"klog stream {name or target}",
            files=[file] if file is not None and deploy_mode == "cluster" else [],
        )
        return await show_or_run(invocation, made)
    folder = StreamFolder(state or klog_home() / "streams", name or target.rpartition(":")[2].rpartition("/")[2])
    if file is not None and not file.is_file():
        raise NoSuchThing(f"{file}: no such file")
    cluster = await _reached(invocation, PATIENCE_S if folder.has_begun else 0.0)
    if into is not None:
        invocation.check_may_change()
    for topic in (*(one.topic for one in inputs), *([] if into is None else [into])):
        try:
            await cluster.topic(topic)  # which takes Spark, once it has started, a quarter of a minute to miss
        except KlogError as error:  # the stream itself waits for what passes, such as brokers that are away
            if isinstance(error, UnknownTopicOrPartition) or not may_pass(error, 0):
                raise
    servers = await invocation.bootstrap_servers()
    options = {"startingOffsets": "earliest" if begin == "start" else "latest"}
    if max_messages is not None:
        options["maxOffsetsPerTrigger"] = str(max_messages)
    sink = sink_of(servers, target, tuple(one.strip() for one in (key or "").split(",") if one.strip()), chosen)
    where = with_few_partitions(SparkTarget(master, None, dict(pairs(conf)), klog_home() / "cache"))

    def start() -> Any:
        streams = Streams(servers, where.session())
        given = open_inputs(streams, inputs, options, None if late is None else Late(late, time))
        computed = program.stream(streams, given, "update" if update else "append")
        return computed.start(sink, str(folder.checkpoint), every=every, available_now=once, name=folder.name)

    with folder.running():
        from klog.streams.running import now

        folder.describe(Description(folder.name, tuple(sources), target, str(program), str(servers), started_at=now()))
        await _run(invocation, folder, start)
    return None


async def _reached(invocation: Invocation, patience_s: float) -> Cluster:
    """The cluster, waited for: a stream that goes on may be started again in the moment in which its brokers are."""
    now_s = asyncio.get_running_loop().time
    deadline_s = now_s() + patience_s
    is_said = False
    while True:
        try:
            return await invocation.cluster()
        except CannotConnect as error:
            if now_s() >= deadline_s:
                raise
            if not is_said:
                invocation.say(f"{error.message}; it is waited for, {patience_s:g} s at the most")
                is_said = True
        await asyncio.sleep(LOOK_EVERY_S)


async def _run(invocation: Invocation, folder: StreamFolder, start: Any) -> None:
    """Until SIGINT, SIGTERM or a stop file; a second signal ends the process at once."""
    from klog.streams import running
    from klog.streams.status import BatchRow

    show = rows_as_they_come(invocation)
    stop = interrupt.stop_event(lambda: invocation.say("stopping; a batch in hand is begun again by the next run"))

    def begin() -> Any:
        invocation.say("starting Spark")
        query = start()
        invocation.say("the stream runs: a line for each batch, the first one may take a while")
        return query

    done = await asyncio.to_thread(
        running.run, folder, begin, stop, on_batch=lambda one: show([BatchRow.of(one)]), say=invocation.say
    )
    batches = 0 if done.batch is None else done.batch + 1
    invocation.say(f"stopped after {counted(batches, 'batch', 'batches')}; the next run continues from there")


def _folders(names: list[str] | None, state: Path | None) -> list[StreamFolder]:
    where = state or klog_home() / "streams"
    return [StreamFolder(where, name) for name in names] if names else all_streams(where)


@stream.command("list", rows="klog.streams.status:StreamRow", connects=False)
def list_streams(invocation: Invocation, state: State = None) -> Report:
    """List the streams of this machine: what they compute, and whether they run."""
    from klog.streams import status as stream_status

    return invocation.report(stream_status.rows(_folders(None, state)))


@stream.command("status", rows="klog.streams.status:StreamStatus")
async def show_status(
    invocation: Invocation,
    names: list[str] | None = argument("NAME", "The streams; all if none is given."),
    max_lag: int | None = flag("--max-lag N", "Exit 1 if one lags by more, or does not run.", min=0),
    state: State = None,
) -> Report:
    """Show the lag, the last batch, the watermark, late rows and the state of streams."""
    from klog.streams import status as stream_status

    servers = await invocation.answering_servers()
    rows = await asyncio.to_thread(stream_status.status, _folders(names, state), servers)
    behind = [
        row.name
        for row in rows
        if max_lag is not None and (row.lag is None or row.lag > max_lag or row.state != stream_status.RUNNING)
    ]
    footer = f"behind by more than {max_lag:,} messages, or not running: {', '.join(behind)}" if behind else None
    return invocation.report(rows, footer=footer, failed=bool(behind))


@stream.command("stop", rows="klog.streams.status:StreamRow", connects=False, asks=True)
async def stop_stream(
    invocation: Invocation,
    name: str = argument("NAME", "The stream.", ...),
    remove: bool = flag("--remove", "Remove it too, with its checkpoint; its output stays. Asks first."),
    state: State = None,
) -> Report:
    """Stop a stream, and wait until it has stopped. The next `klog stream run` continues from there."""
    from klog.streams import status as stream_status

    (folder,) = _folders([name], state)
    folder.existing()
    preview = invocation.report(stream_status.rows([folder]))
    if remove:
        invocation.confirm(f"Remove the stream {name} with its checkpoint in {folder.path}", preview)
    invocation.end_dry_run(f"stop the stream {name}", preview)
    does_run = folder.is_running()
    if does_run:
        folder.ask_to_stop()
    deadline = asyncio.get_running_loop().time() + STOP_WAIT_S
    while folder.is_running():
        if asyncio.get_running_loop().time() > deadline:
            raise TimedOut(f"{name} has not stopped within {STOP_WAIT_S:.0f} s; it is still asked to")
        await asyncio.sleep(LOOK_EVERY_S)
    footer = "" if does_run else f"{name} does not run"
    rows = stream_status.rows([folder])
    if remove:
        folder.remove()
        footer = f"removed {folder.path}"
    return invocation.report(rows, footer=footer)
