"""Read and write tables as streams: Spark's ``Source`` and ``Sink`` over the engine's scan and writer."""

from __future__ import annotations

import pydelta.engines.spark  # noqa: F401 - refuses a Spark that this engine is not made for, before it is imported
