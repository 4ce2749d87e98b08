"""Perform a request whose tables were looked at: erase, search elsewhere, report, and note the keys in a list."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydelta.errors import InvalidArgumentError
from pydelta.tools.erasure.elsewhere import search_places
from pydelta.tools.erasure.report import report_of, write_report
from pydelta.tools.erasure.running import ErasureOutcome, ErasureRequest, Targets, erase_all
from pydelta.tools.erasure.suppression import add_to_list, keys_of_outcomes

__all__ = ["Beside", "Performed", "perform", "read_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What is done beside an erasure.

    Args:
        options: Storage options.
        search: Locations to search for keys, too.
        report: The folder of reports; None for none.
        sign: The private key that signs them; None for reports without a signature.
        suppress: The list to add the keys to; None for none.
    """

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    search: Sequence[str] = ()
    report: Path | None = None
    sign: Path | None = None
    suppress: str | None = None

    def __post_init__(self) -> None:
        if self.sign is not None and self.report is None:
            raise InvalidArgumentError("There is no report to sign.", hint="Name a folder with --report.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Performed:
    """The result of a request.

    Args:
        document: Its report.
        outcomes: The results of its tables.
        written: The file of the report; None if none was written.
    """

    document: Mapping[str, Any]
    outcomes: Sequence[ErasureOutcome] = field(repr=False)
    written: Path | None = None

    @property
    def status(self) -> str:
        """``proven`` or ``incomplete``."""
        return str(self.document["status"])


def perform(request: ErasureRequest, targets: Targets, planned: Sequence[ErasureOutcome], beside: Beside) -> Performed:
    """Erase the keys from all tables of a plan, and do what is done beside.

    Args:
        request: The request.
        targets: Its tables.
        planned: The looks at them, in the order of the erasure.
        beside: What is done beside.

    Raises:
        DeltaError: The only table of the request failed, or a report or a list cannot be written. What was erased stays
            erased.
    """
    outcomes = erase_all(planned, request)
    if len(outcomes) == 1 and outcomes[0].error is not None:
        raise outcomes[0].error
    elsewhere = search_places(beside.search, targets.chosen, beside.options)
    document = report_of(outcomes, request, passed_over=targets.passed_over, elsewhere=elsewhere)
    written = None if beside.report is None else write_report(document, beside.report, key_file=beside.sign)
    if beside.suppress is not None:
        add_to_list(beside.suppress, keys_of_outcomes(outcomes), request=document["id"], options=beside.options)
    return Performed(document=document, outcomes=outcomes, written=written)


def read_options(file: str) -> dict[str, str]:
    """Read storage options from a file with a line ``NAME=VALUE`` or ``NAME VALUE`` for each. No error shows a value.

    Raises:
        InvalidArgumentError: It cannot be read, or a line is something else.
    """
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(
            f"The options in {file} cannot be read: {type(error).__name__}.", hint="Write a line NAME=VALUE for each."
        ) from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, *rest = re.split(r"\s*=\s*|\s+", line.strip(), maxsplit=1)
        if not name or not rest or not rest[0]:
            raise InvalidArgumentError(f"Line {number} of {file} is no option.", hint="Write NAME=VALUE.")
        found[name] = rest[0]
    return found
