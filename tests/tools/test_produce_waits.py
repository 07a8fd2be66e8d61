"""Producing while nobody takes anything: it goes on trying, says so, reads no more; or gives up and says what."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from klog.client.positions import parse_range
from klog.tools.deliveries import Rejects
from klog.tools.options import ProduceOptions
from klog.tools.produce import Receipt, produce
from tests.broker_fixture import RunningBroker
from tests.cli.process import started
from tests.cli.runner import klog
from tests.tools.verbs import make_topic, read, run, send

LINES = [b"%04d" % number for number in range(1, 41)]


def said_until(process: subprocess.Popen[bytes], text: str) -> str:
    """What stands on stderr up to a line with this text; AssertionError where it ends before."""
    assert process.stderr is not None
    said = ""
    while text not in said:
        line = process.stderr.readline().decode()
        assert line, f"{text!r} was not said:\n{said}"
        said += line
    return said


def all_of(bootstrap: str, topic: str) -> list[bytes]:
    return read(bootstrap, topic, offset=parse_range("start:end"))[0].split()


def test_what_is_given_up_is_kept_or_named(
    make_broker: Callable[..., RunningBroker], topic: str, tmp_path: Path
) -> None:
    one = make_broker().start()
    make_topic(one.bootstrap, topic)
    rows = [b'{"key":"k","value":"%s"}' % line for line in LINES]
    path = tmp_path / "rejects"

    def given_up(lines: list[bytes], rejects: Rejects | None, **form: Any) -> Receipt:
        options = ProduceOptions(**form, give_up_after_s=0.3)
        text = b"\n".join(lines)

        async def work(cluster: Any) -> Receipt:
            await cluster.topic(topic)
            one.kill()
            return await produce_known(cluster, topic, text, options, rejects)

        found = run(one.bootstrap, work, timeout_s=2)
        one.start()
        return found

    named = given_up(LINES, None)
    assert (named.messages, named.failed) == (0, 40)
    assert [(one.first, one.last) for one in named.given_up] == [(1, 40)]
    rejects = Rejects(path)
    kept = given_up(rows, rejects, input="jsonl")
    rejects.close()
    assert (kept.messages, kept.failed, kept.given_up, rejects.count) == (0, 40, (), 40)
    ran = klog("produce", topic, "-i", "jsonl", path, "-B", one.bootstrap)
    assert ran.code == 0, ran.stderr
    assert all_of(one.bootstrap, topic) == LINES


async def produce_known(
    cluster: Any, topic: str, text: bytes, options: ProduceOptions, rejects: Rejects | None
) -> Receipt:
    """As by a command that has just seen the topic."""
    node = await cluster.topic(topic)

    async def known(name: str, *, fresh: bool = False) -> Any:
        return node

    cluster.topic = known
    return await produce(cluster, topic, [io.BytesIO(text)], options, rejects=rejects)


def test_the_command_names_lines_and_keeps_them(broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    """A message that no broker takes, whoever waits for it; and a line that is no message."""
    make_topic(broker.bootstrap, topic, max_message_bytes="5000")
    lines = b"a\n" + b"x" * 20_000 + b"\nb\n"
    at = ("--batch-messages", "1", "-B", broker.bootstrap)
    ran = klog("produce", topic, "-q", *at, input=lines)
    assert ran.code == 1
    assert "1 message " in ran.stderr and "line 2 of input" in ran.stderr
    path = tmp_path / "rejects"
    ran = klog("produce", topic, "--rejects", path, *at, input=lines)
    assert ran.code == 1
    assert "line 2" not in ran.stderr and f"klog produce {topic} -i jsonl {path}" in ran.stderr
    assert path.read_bytes().count(b"\n") == 1
    ran = klog("produce", topic, "-i", "jsonl", "--rejects", tmp_path / "other", *at, input=b'{"value":"c"}\n{}\n')
    assert ran.code == 1 and "line 2 of input" in ran.stderr
    assert not (tmp_path / "other").exists()
    assert sorted(all_of(broker.bootstrap, topic)) == [b"a", b"a", b"b", b"b", b"c"]
    assert klog("produce", topic, "--give-up-after", "0s", *at).code == 2


def test_an_interruption_names_what_was_not_sent(make_broker: Callable[..., RunningBroker], topic: str) -> None:
    one = make_broker().start()
    make_topic(one.bootstrap, topic)
    assert send(one.bootstrap, topic, b"a\n").is_complete
    with started("produce", topic, "-B", one.bootstrap) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"b\n")
        process.stdin.flush()
        while len(all_of(one.bootstrap, topic)) < 2:
            pass
        one.kill()
        process.stdin.write(b"c\nd\n")
        process.stdin.flush()
        said_until(process, "waiting")
        process.send_signal(2)
        said = process.stderr.read().decode()
        assert process.wait(20) == 130
    assert "of stdin" in said and "interrupted" in said, said
    assert "lines 2 to 3" in said or ("line 2" in said and "line 3" in said), said
