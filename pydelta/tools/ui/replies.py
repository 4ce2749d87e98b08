"""Define the reply to a request, and the errors that become one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pydelta.tools.ui.pages import json_text, message_page
from pydelta.tools.ui.values import Trouble

__all__ = ["HTML", "JSON", "NoPageError", "PageReply", "Query", "told"]

HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json; charset=utf-8"

Query: TypeAlias = Mapping[str, str]
"""The fields of a request, each with its last value."""


@dataclass(frozen=True, slots=True)
class PageReply:
    """The answer to a request: body, content type and HTTP status."""

    body: bytes
    kind: str = HTML
    status: int = 200


class NoPageError(Exception):
    """The requested page does not exist."""

    def __init__(self, status: int, title: str, trouble: Trouble) -> None:
        super().__init__(title)
        self.status, self.title, self.trouble = status, title, trouble


def told(status: int, title: str, trouble: Trouble, *, as_json: bool) -> PageReply:
    """Return a message in place of a page."""
    if as_json:
        return PageReply(json_text({"error": title, "message": trouble.what, "next": trouble.next}), JSON, status)
    return PageReply(message_page(title, trouble).encode(), HTML, status)
