"""The table of permissions in docs/security.md, from the broker's own; the rest of that page is written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import klog
from klog.protocol.apis import ApiKey, api_name
from klog.security.access_table import RULES, Needs, Rule

PATH: Final = "docs/security.md"

BEGIN: Final = "<!-- scripts/build_man writes this table from klog/security/access_table.py -->\n"
END: Final = "<!-- end of the table -->\n"


def page() -> str:
    """The whole page, with the table of today."""
    path = Path(klog.__file__).parent.parent / PATH
    text = path.read_text("utf-8") if path.exists() else ""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{_table()}\n{END}{rest.partition(END)[2]}"


def _table() -> str:
    lines = ["| request | permission | |", "|---|---|---|"]
    for key, rule in sorted(RULES.items()):
        name = f"{api_name(key)} ({int(ApiKey(key))})"
        lines.append(f"| {name} | {_permission(rule)} | {rule.open or rule.about} |")
    return "\n".join(lines) + "\n"


def _permission(rule: Rule) -> str:
    if rule.brokers:
        return "only brokers, by the cluster's secret"
    if rule.open:
        return "none"
    parts = [_words(one) for one in (rule.whole, rule.each) if one]
    if rule.settings is not None:
        parts.append(f"{rule.settings.title} Topic, or of a broker {rule.settings.title} Cluster")
    text = ", and for each ".join(parts) if len(parts) > 1 else "".join(parts)
    if rule.rows and not parts:
        return f"{_words(rule.shown)} for each row that is shown"
    return text


def _words(needs: Needs) -> str:
    return " or ".join(map(str, needs))
