"""The judge of groups finds what it is there to find."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.group_judge import Events, Sample, judge_commits, judge_owners, judge_reads
from tests.rows import each


def owner(generation: int, *partitions: int) -> dict[str, Any]:
    return {"is": "owner", "at": 0.0, "generation": generation, "partitions": list(partitions)}


def read(at: float, partition: int, *offsets: int) -> dict[str, Any]:
    return {"is": "read", "at": at, "offsets": {str(partition): list(offsets)}}


FINE: dict[str, Events] = {
    "a": [owner(1, 0, 1), read(1.0, 0, 5, 9), owner(2, 0), read(3.0, 0, 12)],
    "b": [owner(2, 1), read(2.0, 1, 7), owner(3), owner(4, 0, 1)],
}
SAMPLES: list[Sample] = [(0.5, {}), (1.5, {0: 10}), (2.5, {0: 10, 1: 8}), (3.5, {0: 13, 1: 8})]


def test_a_group_that_did_all_right_is_not_accused() -> None:
    judge_owners(FINE)
    judge_commits(FINE.values(), SAMPLES)
    judge_reads(FINE.values(), {0: [5, 9, 12], 1: [7]})


@each("claim", [owner(1, 1), owner(2, 0), owner(4, 1)], ids=["first", "second", "last"])
def test_two_owners_in_a_generation_are_found(claim: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="more than one owner"):
        judge_owners({**FINE, "c": [claim]})


def test_a_generation_that_goes_back_is_found() -> None:
    with pytest.raises(AssertionError, match="go back"):
        judge_owners({"a": [owner(2, 0), owner(1)]})


@each(
    ("sample", "words"),
    [((1.4, {0: 11}), "not read"), ((0.9, {0: 6}), "not read"), ((1.4, {1: 8}), "not read"), ((4.0, {0: 12}), "13")],
    ids=["beyond", "before it was read", "before it was read, elsewhere", "back"],
)
def test_commits_of_what_was_not_read_and_commits_that_go_back_are_found(sample: Sample, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        judge_commits(FINE.values(), sorted([*SAMPLES, sample], key=lambda one: one[0]))


def test_a_message_that_nobody_read_is_found() -> None:
    with pytest.raises(AssertionError, match=r"never read: \[8\]"):
        judge_reads(FINE.values(), {1: [7, 8]})
