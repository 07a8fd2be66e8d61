"""The flags of what makes an export a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from klog.cli.flags import flag
from klog.errors import UsageError

if TYPE_CHECKING:
    from klog.export.run import TableChoice

TableFormat = Annotated[
    Literal["iceberg", "delta"] | None,
    flag("--table FORMAT", "Make ROOT a table: iceberg or delta; fixed by the first run."),
]
TableName = Annotated[str | None, flag("--table-name NAMESPACE.NAME", "Name of the Iceberg table in its catalogue.")]
Catalog = Annotated[str | None, flag("--catalog URI", "Catalogue of the Iceberg table; one of its own if not given.")]


def table_choice(table: str | None, name: str | None, catalog: str | None) -> TableChoice | None:
    """The table that these flags name. UsageError where they do not go together."""
    from klog.export.run import TableChoice

    if table is None and (name is not None or catalog is not None):
        raise UsageError(f"{'--table-name' if name is not None else '--catalog'} needs --table iceberg")
    return None if table is None else TableChoice(table, name, catalog)
