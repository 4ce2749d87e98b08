"""Add the project's own pages (README, CHANGELOG …) to the site of the documentation; links follow them there."""

from __future__ import annotations

import re
from pathlib import Path

from docs_llms import full_text, llms_text
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).resolve().parent.parent
_PAGES = {
    "README.md": "project/readme.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/README.md": "project/benchmarks.md",
}
_LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")
_read: dict[str, str] = {}
"""The Markdown of each page of this build, for llms.txt."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the decisions, in their order, before the last section of the navigation."""
    decisions = [f"adr/{path.name}" for path in sorted((_ROOT / "docs" / "adr").glob("*.md"))]
    assert config.nav is not None
    config.nav.insert(len(config.nav) - 1, {"Decisions": decisions})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add each page under its place in the site."""
    for source, place in _PAGES.items():
        files.append(File.generated(config, place, content=(_ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links between files of the repository to their pages."""
    here = page.file.src_uri
    _read[here] = markdown
    own = {place: source for source, place in _PAGES.items()}.get(here, f"docs/{here}")

    def follow(match: re.Match[str]) -> str:
        target = ((_ROOT / own).parent / match.group(2)).resolve()
        if not target.is_relative_to(_ROOT):
            return match.group(0)
        name = target.relative_to(_ROOT).as_posix()
        place = _PAGES.get(name, name.removeprefix("docs/") if name.startswith("docs/") else None)
        if place is None:
            return match.group(0)
        if (_ROOT / name).is_dir():
            place = next(f"{place}/{page.name}" for page in sorted((_ROOT / name).glob("*.md")))
        up = "../" * here.count("/")
        return f"{match.group(1)}{up}{place}{match.group(3)}"

    return _LINK.sub(follow, markdown)


def on_post_build(*, config: MkDocsConfig) -> None:
    """Write llms.txt and llms-full.txt at the site's root; a page without a first sentence fails the build."""
    assert config.nav is not None
    site = Path(config.site_dir)
    summary = " ".join((config.site_description or "").split())
    (site / "llms.txt").write_text(llms_text(config.site_name, summary, config.nav, _read))
    (site / "llms-full.txt").write_text(full_text(config.nav, _read))
