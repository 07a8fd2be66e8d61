"""docs/library.md: its examples run, and its settings are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klog.client.consumer_settings import SETTINGS
from klog.config.setting import text_of
from tests.broker_fixture import RunningBroker
from tests.tools.verbs import make_topic, send

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "library.md"
CONSUMER = re.search(r"^## Consumer$(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
EXAMPLES = re.findall(r"^```python\n(.*?)^```", CONSUMER[1] if CONSUMER else "", re.M | re.S)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_of_the_consumer_runs(example: str, broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 2)
    for partition in range(2):
        send(broker.bootstrap, topic, b"a page\n" * 5, partition=partition)
    code = example.replace("127.0.0.1:2181", broker.zookeeper).replace('"pages', f'"{topic}')
    code = re.sub(rf'(group=|"{re.escape(broker.zookeeper)}", )"', rf'\1"{topic}-', code)
    exec(compile(code, str(PAGE), "exec"), {"__name__": "example"})


def test_the_table_of_settings_is_the_one_in_the_code() -> None:
    rows = [
        f"| `{one.name}` | {text_of(one.default) or '-'} | {one.doc}{_older(one.aliases)} | {one.effect} |"
        for one in SETTINGS
    ]
    table = "\n".join(["| setting | default | | what klog does |", "|---|---|---|---|", *rows])
    assert table in PAGE.read_text(), f"write this into {PAGE}:\n{table}"


def _older(aliases: tuple[str, ...]) -> str:
    return f" Also: {', '.join(f'`{one}`' for one in aliases)}." if aliases else ""
