"""A text in ``-o yaml`` is a text for readers of YAML 1.1, YAML 1.2 and JSON."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from klog.render.writer import yaml_text

CORE_1_2 = re.compile(
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)|null|Null|NULL|~|true|True|TRUE|false|False|FALSE|"
)
"""What the core schema of YAML 1.2 (10.3.2) takes for no string; JSON's numbers are among it."""
OF_1_1 = re.compile(
    r"[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+"
    r"|[-+]?([0-9][0-9_]*)?\.[0-9.]*([eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*"
    r"|y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF"
)
"""And the types of YAML 1.1 (int, float, bool) beyond that."""


@given(st.one_of(st.from_regex(CORE_1_2, fullmatch=True), st.from_regex(OF_1_1, fullmatch=True), st.text()))
@example("1e3")
@example("0o17")
@example("25921e05")
@example("-.5e3")
@example("y")
def test_what_looks_like_no_text_is_in_quotes(text: str) -> None:
    written = yaml_text({"a": text})
    assert yaml.safe_load(written) == {"a": text}
    is_plain = not written.removeprefix("a: ").startswith(("'", '"', "|", ">"))
    assert not (is_plain and (CORE_1_2.fullmatch(text) or OF_1_1.fullmatch(text))), written


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1,000", "-0o7", "+0x1F", "0X1f"])
def test_what_single_readers_take_for_numbers_is_in_quotes(text: str) -> None:
    assert yaml_text([text]) == f"- '{text}'\n"


@pytest.mark.parametrize("text", ["orders", "127.0.0.1:9092", "e1", "3 brokers", "yes-topic", "1e3x"])
def test_other_texts_stand_as_they_are(text: str) -> None:
    assert yaml_text([text]) == f"- {text}\n"
