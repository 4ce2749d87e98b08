"""Provide the Python API that Delta users know: ``DeltaTable`` and its builders."""

from __future__ import annotations

import pydelta.engines.spark  # noqa: F401 - refuses unsupported versions of Spark before importing them
