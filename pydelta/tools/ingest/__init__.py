"""Feed tables from streams of records: decode them, set bad ones aside, and apply each batch once."""

from __future__ import annotations

import pydelta.engines.spark  # noqa: F401 - refuses an unsupported version of Spark before the modules below import it
