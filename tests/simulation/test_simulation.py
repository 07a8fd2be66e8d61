"""Worlds by the seed: none breaks a law, each tells the same story twice, and a rule that is taken out is missed.

More of them: scripts/faults --simulate 10000.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.simulation.cluster import Plan
from tests.simulation.removals import BEHIND, REMOVALS, WITHIN, Removal
from tests.simulation.removed import PATCHES
from tests.simulation.simulate import Outcome, Total, simulate

CHUNK = 25
SEEDS = 500
DEFAULT = 100
"""So many of them belong to the fast tier and to the default one."""


@pytest.mark.parametrize(
    "first",
    [
        *range(0, DEFAULT, CHUNK),
        *(pytest.param(first, marks=pytest.mark.long("extra seeds")) for first in range(DEFAULT, SEEDS, CHUNK)),
    ],
)
def test_no_world_breaks_a_law(first: int) -> None:
    total = Total()
    for seed in range(first, first + CHUNK):
        total.add(simulate(seed))
    assert not total.failed, "\n\n".join(outcome.told() for outcome in total.failed)
    assert total.acked > 20 * CHUNK, "too little happens in these worlds to prove anything"
    assert sum(total.faults.values()) > 3 * CHUNK
    assert total.waiting < CHUNK / 5, "too many worlds end without a leader"


def first_without(removal: Removal) -> Outcome:
    """The first world in which the rule is missed."""
    seeds = range(removal.seed, removal.seed + WITHIN)
    found = next((one for seed in seeds if (one := simulate(seed, removal.planned)).violation is not None), None)
    assert found is not None, f"{WITHIN} worlds without the rule, and no law was broken"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("removal", REMOVALS, ids=lambda removal: removal.rule)
def test_a_rule_that_is_taken_out_is_missed(removal: Removal) -> None:
    with_it = simulate(first_without(removal).seed, removal.plan)
    assert with_it.violation is None, with_it.told()


def test_every_rule_that_can_be_taken_out_is() -> None:
    taken = {rule for removal in REMOVALS for rule in removal.without}
    sources = [path.read_text() for path in Path(__file__).parent.glob("*.py")]
    asked = {rule for source in sources for rule in re.findall(r'holds\("([^"]+)"\)', source)}
    assert taken | BEHIND.keys() == asked | PATCHES.keys()


def test_a_seed_that_fails_tells_its_story_and_the_same_one_again() -> None:
    removal = next(removal for removal in REMOVALS if removal.rule.startswith("R9"))
    first = first_without(removal)
    again = simulate(first.seed, removal.planned)
    assert again.story == first.story
    assert str(again.violation) == str(first.violation)
    told = first.told(lines=50)
    assert told.startswith(f"seed {first.seed}: {first.violation}")
    assert len(told.splitlines()) <= 52
    assert any(" ! " in line for line in first.story), "no fault is told"
    assert any("leads in epoch" in line for line in first.story)


def test_worlds_differ_by_their_seed_and_repeat_by_it() -> None:
    outcomes = [simulate(seed, Plan(chaos_s=3.0)) for seed in (1, 2, 1)]
    first, other, again = [(one.events, one.acked, dict(one.faults)) for one in outcomes]
    assert first == again
    assert first != other
