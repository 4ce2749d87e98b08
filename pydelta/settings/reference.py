"""List the settings of sessions, tables and the reference engine, with their meaning and their effect here.

A setting of the reference is ``honoured`` if it is an alias in the row of one of our settings, and ``refused`` if only
one value is allowed here. The rest has no effect here: performance, layout, switches for old bugs, other formats.
``docs/guides/settings.md`` shows the tables; a test compares the two.
"""

from __future__ import annotations

import functools
import importlib.resources
import operator
import tomllib
from collections.abc import Mapping

from pydelta.settings.refused import PREFIX, ReferenceSetting, refused_settings
from pydelta.settings.row import rows_of, table_of
from pydelta.settings.session import ALIASES, Settings, honoured_settings
from pydelta.settings.table import TableProperties

__all__ = ["PREFIX", "guide_tables", "reference_settings"]


@functools.cache
def reference_settings() -> Mapping[str, ReferenceSetting]:
    """Return all settings of the reference by full name: first those with an effect here, then the others."""
    text = importlib.resources.files("pydelta.settings").joinpath("reference.toml").read_text(encoding="utf-8")
    others = (ReferenceSetting(key=_full(name), **row) for name, row in tomllib.loads(text).items())
    return {**honoured_settings(), **refused_settings(), **{item.key: item for item in others}}


def _full(name: str) -> str:
    return name if name.startswith("spark.databricks.io.") else PREFIX + name


def guide_tables() -> str:
    """Render the tables of the guide as Markdown."""
    own = rows_of(Settings)
    aliases = {row.key: alias for alias, row in ALIASES.items()}
    names = [f" `{aliases[key]}` |" if key in aliases else " |" for key in own]
    refused = [f"| `{item.key}` | `{item.only}` | {item.meaning} |" for item in refused_settings().values()]
    rest = [
        f"| `{item.key}` | {item.meaning} |"
        for item in reference_settings().values()
        if not item.ours and not item.only
    ]
    return "\n".join(
        [
            "## Settings of a session",
            "| setting | default | meaning | also honoured |\n|---|---|---|---|",
            *map(operator.add, table_of(own, "spark.pydelta."), names),
            "",
            "## Properties of a table",
            "| property | default | meaning |\n|---|---|---|",
            *table_of(rows_of(TableProperties)),
            "",
            "## Refused unless they have one value",
            "| setting | allowed value | meaning |\n|---|---|---|",
            *refused,
            "",
            "## Ignored",
            '| setting | meaning in the reference ("here": in this engine) |\n|---|---|',
            *rest,
        ]
    )
