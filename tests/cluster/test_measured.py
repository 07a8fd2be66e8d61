"""What the brokers of a cluster show to Prometheus while one dies; and that the dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

from klog.server.metrics_table import METRICS

ROOT = Path(__file__).resolve().parent.parent.parent
DASHBOARD = ROOT / "docs" / "grafana" / "klog-dashboard.json"


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:kafka|klog|process)_[a-z0-9_]+\b", expression))


def test_the_dashboard_can_be_imported() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert "id" not in dashboard, "an id would replace somebody's dashboard"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == "${datasource}"
    places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in dashboard["panels"]]
    assert all(x + w <= 24 for x, _, w, _ in places)
    for number, (x, y, w, h) in enumerate(places):
        for left, top, width, height in places[number + 1 :]:
            assert x + w <= left or left + width <= x or y + h <= top or top + height <= y, "two panels in one place"


def test_what_the_page_tells_to_watch_is_there() -> None:
    shown = {metric.name for metric in METRICS}
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert shown <= names_in(page)
    watched = page[page.index("## Paging alerts") : page.index("## Every metric")]
    assert len(names_in(watched)) > 5
    assert names_in(watched) <= shown


def test_names_are_what_prometheus_takes() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.name.startswith(("kafka_", "klog_"))
        assert metric.doc.endswith(".")
