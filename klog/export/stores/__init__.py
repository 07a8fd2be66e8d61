"""Where an export can lie; which store a root needs, by its URL."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from klog.errors import UsageError
from klog.export.stores import objects
from klog.export.stores.local import LocalStore, local_path
from klog.export.stores.store import Store, scheme_of

Opener = Callable[[str, bool], Store]
"""Opens a URL; the flag promises that nothing else writes there (see `open_store`)."""

_OPENERS: dict[str, Opener] = {}


def add_opener(schemes: Iterable[str], opener: Opener) -> None:
    """URLs of these schemes are opened by ``opener``, from now on and in this process."""
    _OPENERS.update(dict.fromkeys(schemes, opener))


def open_store(root: str, *, unsafe_single_writer: bool = False) -> Store:
    """The store of an export's root: a path or a URL.

    ``unsafe_single_writer``: stores that can neither rename atomically nor create conditionally are not refused, since
    the caller vouches that no two runs ever write to this root at once.

    UsageError for an unknown scheme, or if a package that it needs is not installed.
    """
    scheme = scheme_of(root)
    if scheme == "file":
        return LocalStore(local_path(root))
    if scheme in _OPENERS:
        return _OPENERS[scheme](root, unsafe_single_writer)
    if scheme in objects.SCHEMES:
        return objects.ObjectStore(root, unsafe_single_writer)
    known = sorted({*_OPENERS, *objects.SCHEMES})
    raise UsageError(
        f"{root}: exports cannot go to {scheme}:",
        hint=f"a folder, for example /data/export, or a URL of {', '.join(known)}",
    )
