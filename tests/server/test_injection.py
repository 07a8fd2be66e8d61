"""Handlers get the parts that they name, and a wrong name or type is an error at the start."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from typing import Any, get_type_hints
from unittest.mock import MagicMock

import pytest

from klog.protocol.apis import ApiKey
from klog.server import handlers
from klog.server.dispatch import ROUTES, BoundRoutes, Injector
from klog.server.parts import Parts


@dataclass(frozen=True)
class Two:
    number: int
    word: str


def test_a_function_gets_what_it_names() -> None:
    def answer(request: str, *, number: int) -> tuple[str, int]:
        return request, number

    assert Injector(Two(7, "w")).inject(answer)("r") == ("r", 7)


def test_a_class_is_made_once() -> None:
    class Handler:
        def __init__(self, *, word: str) -> None:
            self.word = word
            self.calls = 0

        def __call__(self, request: str) -> tuple[str, str, int]:
            self.calls += 1
            return request, self.word, self.calls

    bound = Injector(Two(7, "w")).inject(Handler)
    assert bound("a") == ("a", "w", 1)
    assert bound("b") == ("b", "w", 2)


def test_a_missing_part_is_refused() -> None:
    def answer(request: str, *, nothing: int) -> int:
        return nothing

    with pytest.raises(TypeError, match=r"nothing.*number, word"):
        Injector(Two(7, "w")).inject(answer)


def test_a_part_of_another_type_is_refused() -> None:
    def answer(request: str, *, number: str) -> str:
        return number

    with pytest.raises(TypeError, match="number"):
        Injector(Two(7, "w")).inject(answer)


def test_every_handler_can_be_bound() -> None:
    made_up: dict[str, Any] = {name: MagicMock() for name in get_type_hints(Parts)}
    bound = BoundRoutes()
    bound.bind(ROUTES, Parts(**made_up))
    assert bound.keys() == ROUTES.keys()
    assert ApiKey.PRODUCE in bound and ApiKey.DESCRIBE_SELF in bound


def test_every_module_of_the_folder_is_a_handler() -> None:
    modules = {one.name for one in pkgutil.iter_modules(handlers.__path__)}
    registered = {(route.handle or route.handle_frame).__module__.rpartition(".")[2] for route in ROUTES.values()}
    assert registered == modules
