"""Commits one batch of an export: stage a folder, fill it, flush, commit, checkpoint."""

from __future__ import annotations

from collections.abc import Callable

from klog.export.manifest import Manifest
from klog.export.root import ExportRoot, Staged


def commit_batch(
    place: ExportRoot,
    number: int,
    fill: Callable[[Staged], Manifest | None],
    on_step: Callable[[str], None] = lambda step: None,
) -> bool | None:
    """Commit what ``fill`` writes into the batch's folder. Until then a failure leaves nothing of it.

    ``fill`` returns the manifest, or None where there is nothing to commit. The result is None then, and False where
    another run has committed a batch of this number first.
    """
    staged = place.stage(number)
    committed = None
    try:
        on_step("staged")
        manifest = fill(staged)
        if manifest is not None:
            digest = place.flush(staged, manifest)
            on_step("flushed")
            committed = place.commit(staged)
    except BaseException:
        place.discard(staged)
        raise
    if not committed:
        place.discard(staged)
        return committed
    on_step("committed")
    place.checkpoint(number, digest)
    on_step("checkpointed")
    return True
