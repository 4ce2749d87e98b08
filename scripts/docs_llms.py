"""List the site's pages for programs that read (llms.txt): each page with its title and its first sentence.

It uses neither mkdocs nor a package, so that a test without the site's environment can use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_NOT_PROSE = ("#", "|", "<", ":::", "![", "!!!", "---", "- ", "* ", "1. ")
_STATUS = re.compile(r"(?:Accepted|Superseded|Rejected)\b")
_LABEL = re.compile(r"^\*\*[A-Z][a-z]+\.\*\* ")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`*\"(])")


def first_sentence(markdown: str) -> str:
    """Return the first sentence of a page's text, without markup; of a page of lists the first item.

    A decision begins with its status, which is skipped.
    """
    text = _COMMENT.sub("", _FENCE.sub("", _FRONT.sub("", markdown)))
    blocks = [block.strip() for block in re.split(r"\n\s*\n", text)]
    prose = [block for block in map(_without_headings, blocks) if block and not _STATUS.match(block)]
    chosen = next((block for block in prose if not block.startswith(_NOT_PROSE)), None)
    if chosen is None:
        lists = [re.split(r"\n(?:[-*]|\d+\.) ", block)[0] for block in prose if block.startswith(("- ", "* ", "1. "))]
        chosen = lists[0].lstrip("-*1. ") if lists else ""
    plain = " ".join(_LINK.sub(r"\1", _LABEL.sub("", chosen)).replace("**", "").split())
    return _END.split(plain, maxsplit=1)[0].rstrip(":")


def _without_headings(block: str) -> str:
    return "\n".join(line for line in block.splitlines() if not line.startswith("#")).strip()


def nav_pages(nav: Sequence[Any], sections: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield sections, title and file of each page of mkdocs' navigation; a page without a title has an empty one."""
    for item in nav:
        if isinstance(item, str):
            yield sections, "", item
            continue
        for title, under in item.items():
            if isinstance(under, str):
                yield sections, title, under
            else:
                yield from nav_pages(under, (*sections, title))


def llms_text(name: str, summary: str, nav: Sequence[Any], pages: Mapping[str, str], suffix: str = ".html") -> str:
    """Write llms.txt: the site's name and summary, then each section of the navigation with its pages.

    Args:
        name: The site's name.
        summary: One or two sentences about the project.
        nav: The navigation, as in mkdocs.yml.
        pages: The Markdown of each file in the navigation.
        suffix: The ending of a page in the built site.
    """
    lines = [f"# {name}", "", f"> {summary}"]
    section = None
    for sections, title, file in nav_pages(nav):
        heading = " / ".join(sections) or "Start"
        if heading != section:
            lines += ["", f"## {heading}", ""]
            section = heading
        sentence = first_sentence(pages[file])
        if not sentence:
            raise ValueError(f"{file} has no sentence for llms.txt. Begin it with one that says what the page is for.")
        lines.append(f"- [{title or _heading(pages[file])}]({file.removesuffix('.md')}{suffix}): {sentence}")
    return "\n".join(lines) + "\n"


def full_text(nav: Sequence[Any], pages: Mapping[str, str]) -> str:
    """Write llms-full.txt: the Markdown of every page, in the order of the navigation."""
    return "\n".join(f"<!-- {file} -->\n\n{pages[file].strip()}\n" for _, _, file in nav_pages(nav))


def _heading(markdown: str) -> str:
    found = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    return found[1] if found else ""
