"""ARCHITECTURE.md: the drawing agrees with the contracts and the imports, and the modules that it names exist."""

from __future__ import annotations

import graphlib
import itertools
import re
import tomllib
from pathlib import Path

import grimp
import pytest

from tests.rows import each

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def drawing() -> list[tuple[bool, list[str]]]:
    """The rows from above: whether it is a row within the server, and its names. Three spaces end the names."""
    found = re.search(r"```\n(.*?)```", TEXT, re.S)
    assert found is not None
    return [(line.startswith("  "), re.split(" {3,}", line.strip())[0].split("  ")) for line in found[1].splitlines()]


def layers(name: str) -> list[set[str]]:
    """Of the contract whose name begins so."""
    (contract,) = [one for one in CONTRACTS if one["name"].startswith(name)]
    return [{module.strip().removeprefix("klog.") for module in layer.split("|")} for layer in contract["layers"]]


HOUSE = [names for is_inside, names in drawing() if not is_inside]
SERVER = [names for is_inside, names in drawing() if is_inside]


def test_the_rooms_are_those_of_the_contract_in_its_order() -> None:
    assert [set(names) for names in HOUSE] == layers("The house")


def test_every_room_is_drawn_once() -> None:
    folders = [path.name for path in (ROOT / "klog").iterdir() if (path / "__init__.py").exists()]
    modules = [path.stem for path in (ROOT / "klog").glob("*.py") if not path.stem.startswith("__")]
    assert sorted(name for names in HOUSE for name in names) == sorted(folders + modules)


def test_the_rooms_of_the_server_stand_in_the_order_of_its_contract() -> None:
    height = {name: number for number, layer in enumerate(layers("The server")) for name in layer}
    drawn = [[height[name] for name in names] for names in SERVER]
    for above, below in itertools.pairwise(drawn):
        assert max(above) < min(below)


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Every import, those for types included."""
    return grimp.build_graph("klog", cache_dir=None)


def test_no_modules_import_each_other_in_a_circle(graph: grimp.ImportGraph) -> None:
    order = graphlib.TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    )
    order.prepare()  # raises with the circle


def test_no_import_points_upwards_in_the_drawing(graph: grimp.ImportGraph) -> None:
    rows = {f"klog.{name}": number for number, names in enumerate(HOUSE) for name in names}
    inner = {f"klog.server.{name}": number for number, names in enumerate(SERVER) for name in names}
    wrong = []
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            for order, depth in ((rows, 2), (inner, 3)):
                a, b = (".".join(one.split(".")[:depth]) for one in (importer, imported))
                if a in order and b in order and a != b and order[a] >= order[b]:
                    wrong.append(f"{importer} imports {imported}")
    assert not wrong


@each("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_what_a_page_names_is_there(page: str) -> None:
    rooms = {name for names in HOUSE for name in names}
    named = set(re.findall(r"`([\w./-]+)`", (ROOT / page).read_text()))
    modules = {name for name in named if "." in name and name.partition(".")[0] in rooms and "/" not in name}
    paths = {name for name in named if re.match(r"(klog|tests|docs|scripts)/", name) and not name.isupper()}
    assert modules | paths, "the page names something"
    for name in modules:
        path = ROOT / "klog" / name.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file() or path.parent.with_suffix(".py").is_file(), name
    for name in paths:
        assert (ROOT / name).exists() or "NAME" in name or "NOUN" in name, name
