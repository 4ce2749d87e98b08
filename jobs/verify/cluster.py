"""Explain why an application on the cluster waits, using the status of Spark's master."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["CLUSTER", "said_of", "why_waiting"]

CLUSTER: Final = "http://spark-master:8080/json/"
_SECONDS: Final = 30.0


def why_waiting(url: str) -> str:
    """Ask the master at this address for its status, and describe it."""
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310
            return said_of(json.load(answer))
    except (OSError, ValueError) as error:
        return f"still waiting for an executor; Spark's master does not answer: {error}"


def said_of(status: Mapping[str, Any]) -> str:
    """Describe which applications hold how many of the cluster's cores."""
    cores, used = status.get("cores", 0), status.get("coresused", 0)
    running = [f"{app['name']} ({app['cores']})" for app in status.get("activeapps", [])]
    return (
        f"still waiting for an executor: {used} of {cores} cores are taken, by {', '.join(running) or 'nobody'}. "
        "Next: wait, or end an application that is not needed"
    )
