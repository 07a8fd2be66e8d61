"""``klog sql``: one question to topics and exports."""

from __future__ import annotations

import asyncio

from klog.cli.command import top_command
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.cli.name_values import pairs
from klog.cli.spark_flags import Conf, Master
from klog.cli.target import klog_home
from klog.render import Report


@top_command("sql")
async def sql(
    invocation: Invocation,
    query: str = argument("QUERY", "A query of Spark SQL.", ...),
    forms: list[str] | None = flag(
        "--from TOPIC:FORM", "FORM of the values: text (if not given), avro, avro=ID, json=COLUMNS."
    ),
    exports: list[str] | None = flag("--export NAME=ROOT", "An export, and its name in the query."),
    count: int | None = flag("-c --count N", "At most N rows.", min=1),
    master: Master = None,
    conf: Conf = None,
) -> Report:
    """Ask topics and exports by Spark SQL.

    A topic has its name, with _ for dots and hyphens, and the columns key, value, topic, partition, offset, timestamp
    and timestampType; with a form, the fields of the value and key, topic, partition, offset, timestamp. Conditions on
    partition and offset, and lower bounds of timestamp, decide what is read where the query names the topic once.
    """
    from klog.spark.running.session import SparkTarget
    from klog.streams import question
    from klog.streams.program import Input
    from klog.streams.streams import Streams, with_few_partitions

    inputs = [Input.parse(one) for one in forms or ()]
    servers = await invocation.answering_servers()
    where = with_few_partitions(SparkTarget(master, None, dict(pairs(conf)), klog_home() / "cache"))

    def ask() -> Report:
        streams = Streams(servers, where.session())
        row_type, rows = question.ask(streams, query, inputs, dict(pairs(exports)), count)
        return Report(invocation.command, row_type, rows)

    return await asyncio.to_thread(ask)
