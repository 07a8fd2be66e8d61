"""One file per API key. Importing this package fills the dispatch table: every module in the folder is imported."""

from __future__ import annotations

import importlib
import pkgutil

from klog.server.dispatch import ROUTES

__all__ = ["ROUTES"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
