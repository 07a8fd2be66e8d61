"""A list as one test: ``@each`` runs a test for every row, goes on behind one that fails, and names all that fail.

Written as ``pytest.mark.parametrize``, which makes a test of each row: 10 to 30 ms more, thousands of times. The rows
are kept apart all the same: each has a folder below the test's ``tmp_path``, its own ``home``, ``topic``, ``disk`` and
``monkeypatch``, and nothing captured of the row before. Other fixtures are shared: rows that change what they give are
tests, by ``parametrize``.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faulty_filesystem import FaultyFileSystem

Test = Callable[..., Any]
LABEL_CHARACTERS = 120
"""A row is named by its values, which may be files."""
FAILURES = (Exception, pytest.fail.Exception)


def each(
    names: str | Sequence[str],
    rows: Iterable[Any],
    *,
    ids: Callable[[Any], object] | Iterable[object] | None = None,
    tests: int = 1,
) -> Callable[[Test], Test]:
    """Run the test for each row. ``tests``: in so many tests, which workers share, where all rows take seconds."""
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    found = list(rows)
    table = [_values(row, len(columns)) for row in found]
    if callable(ids):
        labels = [" ".join(str(ids(value)) for value in row) for row in table]
    elif ids is not None:
        labels = [str(one) for one in ids]
    else:
        labels = [getattr(row, "id", None) or _label(values) for row, values in zip(found, table, strict=True)]

    def decorate(function: Test) -> Test:
        parameters = inspect.signature(function).parameters
        assert set(columns) <= set(parameters), f"{function.__name__} does not take all of {columns}"
        own = [one for name, one in parameters.items() if name not in columns]

        def run(**given: Any) -> None:
            share = given.pop("share") if tests > 1 else 0
            assert table, "the list is empty"
            wrong: list[str] = []
            skipped: list[str] = []
            first: BaseException | None = None
            chosen = range(share, len(table), tests)
            for at in chosen:
                try:
                    with _apart(given, at) as fixtures:
                        outcome = function(**fixtures, **dict(zip(columns, table[at], strict=True)))
                        if inspect.iscoroutine(outcome):
                            asyncio.run(outcome)
                except pytest.skip.Exception as reason:
                    skipped.append(str(reason))
                except FAILURES as error:
                    first = first or error
                    wrong.append(f"- {labels[at]}: {_told(error)}")
            if wrong:
                raise AssertionError(f"{len(wrong)} of {len(chosen)} rows fail:\n" + "\n".join(wrong)) from first
            if len(skipped) == len(chosen):
                pytest.skip(skipped[0])

        if tests > 1:
            own.append(inspect.Parameter("share", inspect.Parameter.KEYWORD_ONLY))
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(run, name, getattr(function, name))
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        )
        run.pytestmark = list(getattr(function, "pytestmark", []))  # type: ignore[attr-defined]
        if tests > 1:
            run = pytest.mark.parametrize("share", range(tests), ids=[f"{one + 1}of{tests}" for one in range(tests)])(
                run
            )
        return run

    return decorate


@contextmanager
def _apart(given: dict[str, Any], at: int) -> Iterator[dict[str, Any]]:
    """The fixtures for one row: those that a row could leave something in are its own."""
    own = dict(given)
    with ExitStack() as stack:
        if "tmp_path" in own:
            own["tmp_path"] = own["tmp_path"] / f"row-{at}"
            own["tmp_path"].mkdir()
        if type(own.get("disk")) is FaultyFileSystem:
            own["disk"] = FaultyFileSystem()
        if isinstance(own.get("topic"), str):
            own["topic"] = f"{own['topic']}-{at}"
        if "monkeypatch" in own:
            own["monkeypatch"] = stack.enter_context(pytest.MonkeyPatch.context())
        if isinstance(own.get("home"), Path):
            own["home"] = own["home"].with_name(f"{own['home'].name}-{at}")
            stack.enter_context(pytest.MonkeyPatch.context()).setenv("KLOG_HOME", str(own["home"]))
        for name in ("capsys", "capfd"):
            if name in own:
                own[name].readouterr()
        if "caplog" in own:
            own["caplog"].clear()
        yield own


def _values(row: Any, count: int) -> tuple[Any, ...]:
    """Of a row in place, or of one that ``pytest.param`` has given a name."""
    if hasattr(row, "marks") and hasattr(row, "values"):
        assert not row.marks, "a row with a mark is a test of its own"
        return tuple(row.values)
    return tuple(row) if count > 1 else (row,)


def _label(row: tuple[Any, ...]) -> str:
    text = " | ".join(one if isinstance(one, str) and one.isprintable() else repr(one) for one in row)
    return text if len(text) <= LABEL_CHARACTERS else f"{text[:LABEL_CHARACTERS]}..."


def _told(error: BaseException) -> str:
    """What it is, and where it was raised."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
    return f"{kind}{error} ({Path(where.filename).name}:{where.lineno}){notes}"
