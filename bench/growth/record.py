"""The curves of a run, as ``docs/scale/results.json`` keeps them; the page and the drawings are made from it alone."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path


@dataclass
class Curve:
    """What one system did at growing x: ``points[figure]`` is a list of (x, value), x rising."""

    key: str
    system: str
    points: dict[str, list[list[float]]] = field(default_factory=dict)
    load: str = ""
    """Of the machine when the curve began: how many processes wanted a core, over the last minute."""
    date: str = ""
    commit: str = ""

    def add(self, x: float, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            kept = [one for one in self.points.get(name, []) if one[0] != x]
            self.points[name] = sorted([*kept, [x, value]])

    def value(self, figure: str, x: float) -> float | None:
        return next((value for at, value in self.points.get(figure, []) if at == x), None)

    def slope(self, figure: str, x: float) -> float | None:
        """What one more costs: of the straight line from the point before to that at `x`; None at the first."""
        points = self.points.get(figure, [])
        for before, point in pairwise(points):
            if point[0] == x:
                return (point[1] - before[1]) / (point[0] - before[0])
        return None


@dataclass
class GrowthRecord:
    """All curves; those of a later run replace those of the same key and system."""

    date: str = ""
    commit: str = ""
    machine: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    curves: list[Curve] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def curve(self, key: str, system: str) -> Curve:
        """Made where there is none yet."""
        found = self.find(key, system)
        if found is None:
            found = Curve(key, system)
            self.curves.append(found)
        return found

    def find(self, key: str, system: str) -> Curve | None:
        return next((one for one in self.curves if (one.key, one.system) == (key, system)), None)

    def systems(self, key: str) -> list[str]:
        return [one.system for one in self.curves if one.key == key]

    def whole_slope(self, key: str, system: str, figure: str) -> float | None:
        """From the first point to the last; None where there are not two."""
        curve = self.find(key, system)
        points = [] if curve is None else curve.points.get(figure, [])
        if len(points) < 2:
            return None
        return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> GrowthRecord:
        told = json.loads(path.read_text())
        return cls(**{**told, "curves": [Curve(**one) for one in told["curves"]]})
