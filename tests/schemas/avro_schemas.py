"""Avro schemas by hand, random ones, and such as have grown out of them."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from hypothesis import strategies as st

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
FIELDS = ("a", "b", "c")
SYMBOLS = ("X", "Y", "Z")


def fields(**types: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": one} for name, one in types.items()]}


def logical(type_: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": logical_type, **more}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> Any:
    """Named types are defined once and referred to afterwards; a record may refer to itself inside a union."""
    counter = [0]
    return _type(draw, depth, [], counter)


def _type(draw: st.DrawFn, depth: int, known: list[str], counter: list[int], *, in_union: bool = False) -> Any:
    kinds = ["primitive", "enum", "fixed"] + ([] if depth == 0 else ["array", "map", "record"])
    if depth and not in_union:
        kinds.append("union")
    if known:
        kinds.append("known")
    kind = draw(st.sampled_from(kinds))
    if kind == "primitive":
        return draw(st.sampled_from(PRIMITIVES))
    if kind == "known":
        return draw(st.sampled_from(known))
    if kind == "array":
        return {"type": "array", "items": _type(draw, depth - 1, known, counter)}
    if kind == "map":
        return {"type": "map", "values": _type(draw, depth - 1, known, counter)}
    if kind == "union":
        branches: list[Any] = []
        for _ in range(draw(st.integers(1, 3))):
            known_before = len(known)
            one = _type(draw, depth - 1, known, counter, in_union=True)
            if _name(one) not in [_name(other) for other in branches]:
                branches.append(one)
            else:
                del known[known_before:]  # what it defined goes with it
        return branches
    counter[0] += 1
    name = f"n{counter[0]}.T{counter[0]}"
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
        known.append(name)
        default = {"default": symbols[0]} if draw(st.booleans()) else {}
        return {"type": "enum", "name": name, "symbols": symbols, **default}
    if kind == "fixed":
        known.append(name)
        return {"type": "fixed", "name": name, "size": draw(st.integers(1, 3))}
    fields: list[dict[str, Any]] = []
    inside = [*known]
    for field in draw(st.lists(st.sampled_from(FIELDS), unique=True)):
        if draw(st.integers(0, 4)) == 0:
            fields.append({"name": field, "type": ["null", name], "default": None})
        else:
            fields.append({"name": field, "type": _type(draw, depth - 1, inside, counter)})
    known.extend(one for one in inside if one not in known)
    known.append(name)
    return {"type": "record", "name": name, "fields": fields}


def _name(raw: Any) -> str:
    if isinstance(raw, str):
        return raw
    if isinstance(raw, list):
        return "union"
    return str(raw.get("name", raw["type"]))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """A schema, and what a few changes have made of it: often compatible, often not."""
    old = draw(schemas())
    new = [copy.deepcopy(old)]
    for _ in range(draw(st.integers(0, 3))):
        places = list(_places(new, 0))
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        holder[key] = _changed(draw, holder[key])
    changed = new[0]
    if draw(st.integers(0, 4)) == 0:  # other namespaces: names match without them
        changed = json.loads(re.sub(r'"n(\d+\.)', r'"m\1', json.dumps(changed)))
    return old, changed


def _places(holder: Any, key: Any) -> Any:
    yield holder, key
    raw = holder[key]
    if isinstance(raw, list):
        for number in range(len(raw)):
            yield from _places(raw, number)
    elif isinstance(raw, dict):
        for inner in ("items", "values"):
            if inner in raw:
                yield from _places(raw, inner)
        for field in raw.get("fields", ()):
            yield from _places(field, "type")


def _changed(draw: st.DrawFn, raw: Any) -> Any:
    if isinstance(raw, dict) and raw["type"] == "record":
        fields = list(raw["fields"])
        act = draw(st.sampled_from(["drop", "add", "add with default", "rename", "alias"]))
        if act == "drop" and fields:
            fields.pop(draw(st.integers(0, len(fields) - 1)))
        elif act == "add":
            fields.append({"name": "added", "type": "int"})
        elif act == "add with default":
            fields.append({"name": "more", "type": ["null", "string"], "default": None})
        elif act in ("rename", "alias") and fields:
            one = dict(fields[0])
            one.update(aliases=[one["name"]] if act == "alias" else [], name="renamed")
            fields[0] = one
        names = [one["name"] for one in fields]
        return raw if len(set(names)) < len(names) else {**raw, "fields": fields}
    if isinstance(raw, dict) and raw["type"] == "enum":
        symbols = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
        return {**raw, "symbols": symbols} | ({"default": symbols[0]} if "default" in raw else {})
    if isinstance(raw, dict) and raw["type"] == "fixed":
        return {**raw, "size": draw(st.integers(1, 3))}
    if isinstance(raw, list):
        return [*raw, "null"] if "null" not in raw and draw(st.booleans()) else raw[:-1] or raw
    if raw in PRIMITIVES:
        return draw(st.sampled_from([*PRIMITIVES, ["null", raw] if raw != "null" else "null"]))
    return raw
