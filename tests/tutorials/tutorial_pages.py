"""Read a tutorial's fenced blocks, run them in order in a scratch folder, and compare what they print with the page.

| block | what happens |
|---|---|
| with ``title="/tmp/lake/…"`` | its text is written to that file |
| ``python`` | runs in one namespace per page; what it prints must be the next block, ``text`` |
| ``console`` | each line after ``$ `` runs in a shell (``\\`` continues it); below it is what it prints |
| ``diff`` | is only read |

``/tmp/lake`` stands for the scratch folder, and ``…`` in output for any text on one line; output that is only ``…`` may
be anything. A command fails if and only if its output begins with ``Error:``. This module needs only Python.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"
FOLDER = "/tmp/lake"
_FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_RUN = frozenset({"python", "console", "text", "diff"})


@dataclass(frozen=True)
class Block:
    kind: str
    file: str | None
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    line: str
    output: str


def blocks_of(page: str) -> list[Block]:
    """All fenced blocks of a page; one of an unknown kind is an error, since it would not run."""
    found = [
        Block(match[1], match[2], match[3], page[: match.start()].count("\n") + 1) for match in _FENCE.finditer(page)
    ]
    fences = page.count("\n```") + page.startswith("```")
    assert 2 * len(found) == fences, "a fence of the page is not closed, or has an unknown form"
    unknown = [(block.kind, block.line) for block in found if block.file is None and block.kind not in _RUN]
    assert unknown == [], f"blocks that would not run: {unknown}"
    return found


def commands_of(block: Block) -> Iterator[Command]:
    """The commands of a console block with what each prints."""
    parts = re.split(r"^\$ ", block.text.replace("\\\n", ""), flags=re.MULTILINE)
    assert parts[0] == "", f"the console block on line {block.line} begins without a command"
    for part in parts[1:]:
        line, _, output = part.partition("\n")
        yield Command(line, output)


def matches(shown: str, printed: str) -> bool:
    """Whether output is what a page shows of it."""
    if shown.strip() == "…":
        return True
    pattern = "[^\n]*".join(map(re.escape, _plain(shown).split("…")))
    return re.fullmatch(pattern, _plain(printed)) is not None


def _plain(text: str) -> str:
    """Output without blanks at the ends of lines, empty lines around it, and the progress of Spark's stages."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()).strip("\n")


def in_shell(root: Path, *, errors: bool = True) -> Callable[[str], tuple[int, str]]:
    """Run a command in a shell whose folder is ``root``: its exit code and what it prints, also as errors if asked."""
    beside = subprocess.STDOUT if errors else None

    def run(line: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", line], cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=beside, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    return run


@dataclass
class Runner:
    """Runs pages in a folder.

    ``patience`` is how long a command that shows another output is run again, for what becomes visible later.
    """

    folder: Path
    shell: Callable[[str], tuple[int, str]]
    patience: float = 0.0

    def run(self, page: str) -> int:
        """Run every block of a page; the number of outputs that were compared."""
        blocks, names, compared = blocks_of(page), {"__name__": "__tutorial__"}, 0
        for number, block in enumerate(blocks):
            if block.file is not None:
                path = Path(self._here(block.file))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self._here(block.text))
            elif block.kind == "python":
                after = blocks[number + 1] if number + 1 < len(blocks) else None
                shown = after.text if after is not None and after.kind == "text" else ""
                self._compare(block, shown, self._python(block, names))
                compared += 1
            elif block.kind == "console":
                for command in commands_of(block):
                    self._command(block, command)
                    compared += 1
        return compared

    def _here(self, text: str) -> str:
        return text.replace(FOLDER, str(self.folder))

    def _python(self, block: Block, names: dict[str, object]) -> str:
        printed = io.StringIO()
        code = compile("\n" * block.line + self._here(block.text), "tutorial", "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        return printed.getvalue()

    def _command(self, block: Block, command: Command) -> None:
        give_up = time.monotonic() + self.patience
        while True:
            code, printed = self.shell(self._here(command.line))
            fails = command.output.startswith("Error:")
            right = bool(code) == fails and matches(self._here(command.output), printed)
            if right or time.monotonic() >= give_up:
                break
            time.sleep(2)
        assert bool(code) == fails, f"{command.line} ended with {code}: {printed}"
        self._compare(block, command.output, printed)

    def _compare(self, block: Block, shown: str, printed: str) -> None:
        shown = self._here(shown)
        assert matches(shown, printed), f"line {block.line}: the page shows\n{shown}\nand it prints\n{printed}"
