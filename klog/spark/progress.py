"""How far a streaming query is behind its topics, out of what Spark knows of the query.

Spark shows nothing of a source in Python but its offsets, and the description is the name of a class of its own. What a
source reports as its newest offset, though, is kept nowhere: klog's has two fields more there, in ``latestOffset`` of
each of the ``sources`` of a query's progress:

    {"offsets": {"clicks": {"0": 4711}}, "topicIds": {...},
     "reads": "topic clicks at 127.0.0.1:9092", "lag": {"messages": 120, "bytes": 14820}}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SourceProgress:
    """One source of a query. The lag is what waits behind the last batch; None where a broker cannot count it."""

    reads: str
    lag_messages: int | None
    lag_bytes: int | None


def source_progress(query: Any) -> list[SourceProgress]:
    """Those of a query's sources that are klog's, as of its last batch; none before the first one.

    ``query`` is a StreamingQuery, or one of its progresses (a StreamingQueryProgress, or the dict of it).
    """
    progress = getattr(query, "lastProgress", query)
    if progress is None:
        return []
    sources = progress["sources"] if isinstance(progress, dict) else progress.sources
    found = []
    for source in sources:
        latest = source["latestOffset"] if isinstance(source, dict) else source.latestOffset
        known = json.loads(latest) if isinstance(latest, str) else latest
        if isinstance(known, dict) and "reads" in known:
            lag = known["lag"]
            found.append(SourceProgress(known["reads"], lag["messages"], lag["bytes"]))
    return found
