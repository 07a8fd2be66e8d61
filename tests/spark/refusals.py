"""A list of what is refused, as one test that names all that is not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

Errors = type[Exception] | tuple[type[Exception], ...]


def not_refused(
    cases: Iterable[tuple[Any, str]],
    act: Callable[[Any], object],
    errors: Errors,
) -> list[Any]:
    """Those of (what, words) for which ``act(what)`` raises none of the errors, or one whose text has not the words.

    ``words`` are a pattern, as pytest's ``match``. Other errors are raised.
    """
    found: list[Any] = []
    for what, words in cases:
        try:
            act(what)
        except errors as error:
            if not re.search(words, str(error)):
                found.append((what, str(error)))
        else:
            found.append(what)
    return found
