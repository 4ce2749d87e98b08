"""Hide credentials in strings from outside: parameters, properties, messages, lines of the log."""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["HIDDEN", "hide_text", "hide_value"]

HIDDEN: Final = "(hidden)"
_KEYS: Final = r"(?:access|account|private|api|shared)[._\- ]?key"
_WORDS: Final = rf"(?:secret|passw(?:or)?d|pwd|token|credential|signature|{_KEYS}|sas[._]key)"
_NAME: Final = re.compile(_WORDS, re.IGNORECASE)
# Every repetition before a fixed text is bounded, so that the time is linear in the length of the text.
# These schemes have a container before the host. `pydelta.storage.kinds` is in a higher layer; a test compares them.
_USER_INFO: Final = re.compile(
    r"(\b(?!abfss?:|az:|wasbs?:)[a-z][a-z0-9+.\-]{0,20}://)[^/\s@'\"]{1,300}@", re.IGNORECASE
)
_PASSWORD_INFO: Final = re.compile(r"(://)[^/\s@:'\"]{1,200}:[^/\s@'\"]{1,300}@")
_SIGNED: Final = re.compile(r"([?&](?:X-Amz-[A-Za-z\-]{1,40}|sig|AWSAccessKeyId)=)[^&\s'\"]+", re.IGNORECASE)
_AWS_KEY: Final = re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")
_GIVEN: Final = re.compile(
    rf"({_WORDS}[\w.\-]{{0,80}}`?\\{{0,8}}[\"']?\s{{0,8}}(?:=>|[=:])\s{{0,8}})"
    r"(\\{0,8}\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.|'')*'?|[^\s,;&}\])\"']+)",
    re.IGNORECASE,
)


def hide_text(text: str) -> str:
    """Hide possible credentials in a text: ``password=…``, keys in a URI, signatures.

    Example:
        >>> hide_text("s3a://me:mine@bucket/t with fs.s3a.secret.key=abc, rows = 3")
        's3a://(hidden)@bucket/t with fs.s3a.secret.key=(hidden), rows = 3'
    """
    text = _USER_INFO.sub(rf"\1{HIDDEN}@", text)
    text = _PASSWORD_INFO.sub(rf"\1{HIDDEN}@", text)
    text = _SIGNED.sub(rf"\1{HIDDEN}", text)
    text = _AWS_KEY.sub(HIDDEN, text)
    return _GIVEN.sub(rf"\1{HIDDEN}", text)


def hide_value(name: str, value: Any) -> Any:
    """Hide credentials in a JSON value, by the names of its keys and by its strings."""
    if isinstance(value, str):
        return HIDDEN if name and _NAME.search(name) else hide_text(value)
    if isinstance(value, dict):
        return {key: hide_value(str(key), item) for key, item in value.items()}
    if isinstance(value, list):
        return [hide_value(name, item) for item in value]
    return HIDDEN if value is not None and not isinstance(value, bool) and name and _NAME.search(name) else value
