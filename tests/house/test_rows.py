"""`tests.rows.each`: every row runs, apart from the others, and what fails is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.rows import each


def test_all_that_fail_are_named_with_what_is_wrong_and_the_others_have_run() -> None:
    ran: list[int] = []

    @each("number, half", [(2, 1), (3, 1), (5, 2), pytest.param(8, 4, id="eight")])
    def halves(number: int, half: int) -> None:
        ran.append(number)
        if number == 5:
            raise KeyError("five")
        assert number == 2 * half

    with pytest.raises(AssertionError) as wrong:
        halves()
    assert ran == [2, 3, 5, 8]
    told = str(wrong.value).splitlines()
    assert told[0].startswith("2 of 4") and "eight" not in str(wrong.value)
    assert any("3 | 1" in line for line in told) and any("5 | 2" in line and "KeyError" in line for line in told)


def test_one_list_in_another_is_all_pairs() -> None:
    ran: list[tuple[str, int]] = []

    @each("letter", "ab")
    @each("number", [1, 2], ids=["one", "two"])
    def pairs(letter: str, number: int) -> None:
        ran.append((letter, number))
        assert (letter, number) != ("b", 2)

    with pytest.raises(AssertionError) as wrong:
        pairs()
    assert ran == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert "- b: " in str(wrong.value) and "- two: " in str(wrong.value)


def test_several_tests_share_a_list() -> None:
    ran: list[int] = []

    @each("number", range(5), tests=2)
    def shared(number: int) -> None:
        ran.append(number)

    for share in (0, 1):
        shared(share=share)
    assert ran == [0, 2, 4, 1, 3]
    (mark,) = shared.pytestmark  # type: ignore[attr-defined]
    assert list(mark.args[1]) == [0, 1]


def test_an_empty_list_is_no_test() -> None:
    @each("number", [])
    def nothing(number: int) -> None: ...

    with pytest.raises(AssertionError):
        nothing()


def test_what_is_left_out_is_no_failure() -> None:
    @each("number", [1, 2])
    def left_out(number: int, least: int) -> None:
        if number >= least:
            pytest.skip("not here")

    left_out(least=2)
    with pytest.raises(pytest.skip.Exception):
        left_out(least=1)


@each("number", [1, 2, 3])
def test_rows_leave_nothing_to_one_another(
    number: int, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(tmp_path.iterdir()) == [] and topic.endswith(f"-{number - 1}")
    assert "KLOG_TEST_ROW" not in os.environ and capsys.readouterr().out == ""
    (tmp_path / "left").write_text(str(number))
    monkeypatch.setenv("KLOG_TEST_ROW", str(number))
    print(number)
