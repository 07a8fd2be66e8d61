"""docs/library.md, the producer: its examples run, and its table has the settings that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klog.client.producer_settings import ALIASES, NO_USE
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.tools.verbs import make_topic

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "library.md"
PRODUCER = re.search(r"^## Producer$(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PRODUCER[1] if PRODUCER else "", re.M | re.S)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_of_the_producer_runs(example: str, broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 2)
    code = example.replace("127.0.0.1:9092", broker.bootstrap).replace('"pages"', f'"{topic}"')
    exec(compile(code, str(PAGE), "exec"), {"__name__": "example"})


@each("name", [*ALIASES, *NO_USE])
def test_the_page_knows_the_setting(name: str) -> None:
    if name in ("on_delivery", "dr_cb", "key.serializer", "value.serializer"):
        return  # what other clients call it
    assert PRODUCER is not None
    assert f"`{name}`" in PRODUCER[1]
