"""Plans are what their names say, and the same seed is the same plan."""

from __future__ import annotations

from tests.faults import injection
from tests.faults import plan as plans
from tests.faults.run import layout


def test_every_fault_meets_every_target_alone_and_some_meet_moves_and_restarts() -> None:
    names = list(plans.cells())
    assert len(names) == len(set(names))
    for fault in plans.FAULTS:
        if fault not in plans.WITHOUT_BROKER:
            assert {f"{fault}/{target}" for target in plans.TARGETS} <= set(names)
    for background in plans.BACKGROUNDS:
        assert sum(name.endswith(f"+{background}") for name in names) >= 5
    assert set(plans.FAULTS) == set(injection._FAULTS)


def test_a_cell_is_a_while_of_load_and_then_its_fault() -> None:
    plan = plans.cell("kill/leader+reassign", 7, 20.0)
    assert [(step.fault, step.target, step.seconds) for step in plan.steps] == [("kill", "leader", 20.0)]
    assert plan.steps[0].at_s >= 1
    assert (plan.background, plan.brokers) == ("reassign", 4)


def test_a_pause_is_as_long_as_it_is_called() -> None:
    assert plans.cell("pause/leader", 7, 20.0).steps[0].seconds < plans.SESSION_S
    for fault in ("pause-long", "cut", "cut-out", "cut-in", "cut-zookeeper"):
        assert plans.cell(f"{fault}/leader", 7, 1.0).steps[0].seconds > plans.SESSION_S


def test_a_seed_repeats_its_mix() -> None:
    assert plans.mix(42, 300) == plans.mix(42, 300)
    assert plans.mix(42, 300).steps != plans.mix(43, 300).steps
    assert plans.mix(42, 300).draw().random() == plans.mix(42, 300).draw().random()
    assert {step.fault for step in plans.mix(42, 1000).steps} > {"kill", "cut", "zookeeper"}


def test_targets_are_what_they_are_called() -> None:
    for controller in (1, 2, 3):
        led = layout(plans.cell("kill/leader", 1, 5), [1, 2, 3], controller, 6)
        assert len({replicas[0] for replicas in led}) == 1
        assert led[0][0] != controller
        assert sorted(led[0]) == [1, 2, 3]
        ruled = layout(plans.cell("kill/controller", 1, 5), [1, 2, 3], controller, 6)
        assert [replicas[0] == controller for replicas in ruled] == [True, False] * 3
        spread = layout(plans.cell("kill/all", 1, 5), [1, 2, 3], controller, 6)
        assert [replicas[0] for replicas in spread] == [1, 2, 3, 1, 2, 3]
    assert layout(plans.cell("kill/leader", 1, 5), [1], 1, 2) == [[1], [1]]
