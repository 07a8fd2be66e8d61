"""Every module of the folder is a handler, and can be bound to the parts of a broker."""

from __future__ import annotations

import pkgutil
from unittest.mock import MagicMock

from klog.protocol.apis import ApiKey
from klog.server import handlers
from klog.server.dispatch import ROUTES, BoundRoutes


def test_every_handler_can_be_bound() -> None:
    bound = BoundRoutes()
    bound.bind(ROUTES, MagicMock())
    assert bound.keys() == ROUTES.keys()
    assert ApiKey.PRODUCE in bound and ApiKey.DESCRIBE_SELF in bound


def test_every_module_of_the_folder_is_a_handler() -> None:
    modules = {one.name for one in pkgutil.iter_modules(handlers.__path__)}
    registered = {route.handle.__module__.rpartition(".")[2] for route in ROUTES.values()}
    assert registered == modules
