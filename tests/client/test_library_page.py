"""docs/library.md: its examples run, and its settings are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klog.client.consumer_settings import SETTINGS
from klog.client.producer_settings import ALIASES, NO_USE
from klog.config.setting import text_of
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.tools.verbs import make_topic, send

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "library.md"


def section(name: str) -> str:
    found = re.search(rf"^## {name}$(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    return found[1] if found else ""


EXAMPLES = {name: re.findall(r"^```python\n(.*?)^```", section(name), re.M | re.S) for name in ("Producer", "Consumer")}


def test_there_are_examples() -> None:
    assert all(len(found) >= 5 for found in EXAMPLES.values())


@pytest.mark.parametrize(
    "example", [pytest.param(one, id=f"{name}-{at}") for name in EXAMPLES for at, one in enumerate(EXAMPLES[name])]
)
def test_an_example_runs(example: str, broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 2)
    for partition in range(2):
        send(broker.bootstrap, topic, b"a page\n" * 5, partition=partition)
    code = example.replace("127.0.0.1:9092", broker.bootstrap).replace("127.0.0.1:2181", broker.zookeeper)
    code = code.replace('"pages', f'"{topic}')
    code = re.sub(rf'(group=|"{re.escape(broker.zookeeper)}", )"', rf'\1"{topic}-', code)
    exec(compile(code, str(PAGE), "exec"), {"__name__": "example"})


@each("name", [*ALIASES, *NO_USE])
def test_the_page_knows_the_setting_of_a_producer(name: str) -> None:
    if name in ("on_delivery", "dr_cb", "key.serializer", "value.serializer"):
        return  # what other clients call it
    assert f"`{name}`" in section("Producer")


def test_the_table_of_a_consumers_settings_has_those_of_the_code() -> None:
    table = (
        PAGE.read_text()
        .partition("| setting | default | | what klog does |\n|---|---|---|---|\n")[2]
        .partition("\n\n")[0]
    )
    rows = [re.fullmatch(r"\| `(\S+)` \| (\S+) \| (.+) \| .+ \|", line) for line in table.splitlines()]
    found = [(row[1], row[2], tuple(re.findall(r"`(.+?)`", row[3].partition("Also:")[2]))) for row in rows if row]
    assert found == [(one.name, text_of(one.default) or "-", one.aliases) for one in SETTINGS]
