"""Seeds of tests that draw: the same in every run, so that a run's outcome is the code's and not the dice's.

To search instead, by hand: `KLOG_TEST_SEED=random scripts/test tests/crash`, or a number to repeat what was found.
"""

from __future__ import annotations

import os
import random
import zlib


def seed_of(name: str) -> int:
    """The seed for this test, printed: a failure's output names it."""
    wanted = os.environ.get("KLOG_TEST_SEED", "")
    seed = random.SystemRandom().randrange(1 << 32) if wanted == "random" else int(wanted or zlib.crc32(name.encode()))
    print(f"seed {seed}")
    return seed


def noise(size: int, number: int = 0) -> bytes:
    """Bytes that no codec makes smaller, the same in every run; another ``number``, other bytes."""
    return random.Random(number).randbytes(size)
