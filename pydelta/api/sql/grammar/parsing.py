"""Parse SQL text into a statement; an error points at the offending token."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from pydelta.api.sql.grammar import statements as st
from pydelta.errors import ParseError
from pydelta.errors.conditions import Condition
from pydelta.protocol.names import path_text

__all__ = ["parse_statement", "syntax_error", "unquote_string"]

_MOST_DIGITS: Final = 40
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}


def parse_statement(text: str) -> st.Statement:
    """Parse one statement.

    Args:
        text: SQL; comments and a semicolon at the end are ignored.

    Raises:
        ParseError: It is not a valid statement; the message shows where.

    Example:
        >>> parse_statement("OPTIMIZE lake.events WHERE day = '2024-01-01' ZORDER BY (id)").where
        "day = '2024-01-01'"
    """
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        raise _explained(text, error) from None
    statement = next(iter(_trees(tree)))
    return _Reader(text).read(statement)


@lru_cache(maxsize=1)
def _parser() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", propagate_positions=True, maybe_placeholders=False, keep_all_tokens=False)


def _trees(tree: Tree[Token], kind: str | None = None) -> Iterator[Tree[Token]]:
    for child in tree.children:
        if isinstance(child, Tree) and (kind is None or child.data == kind):
            yield child


class _Reader:
    """Turns trees into statements; conditions are slices of the text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, tree: Tree[Token]) -> st.Statement:
        return _RULES[str(tree.data)](self, tree)

    # --- statements --------------------------------------------------------------------------------------

    def _vacuum(self, tree: Tree[Token]) -> st.VacuumStatement:
        modes = [child for child in tree.children if isinstance(child, Token) and child.type in ("VACUUM_MODE", "FULL")]
        for kind in ("dry_run", "retain", "inventory", "where"):
            self._once(list(_trees(tree, kind)), kind.replace("_", " ").upper())
        self._once(modes, "FULL or LITE")
        retain = next(_trees(tree, "retain"), None)
        inventory = next(_trees(tree, "inventory"), None)
        query = next(_trees(inventory, "query"), None) if inventory else None
        return st.VacuumStatement(
            table=self._table(tree),
            retain_hours=float(str(retain.children[0])) if retain else None,
            dry_run=any(_trees(tree, "dry_run")),
            mode=str(modes[0]).upper() if modes else None,
            inventory=self._table(inventory) if inventory and not query else None,
            inventory_query=self._slice(query) if query else None,
            where=self._where(tree),
        )

    def _generate(self, tree: Tree[Token]) -> st.GenerateStatement:
        return st.GenerateStatement(
            mode=self._name(next(_trees(tree, "name"))), table=self._table(tree), where=self._where(tree)
        )

    def _optimize(self, tree: Tree[Token]) -> st.OptimizeStatement:
        zorder = next(_trees(tree, "zorder"), None)
        return st.OptimizeStatement(
            table=self._table(tree),
            full=self._has(tree, "FULL"),
            where=self._where(tree),
            zorder_by=tuple(path_text(self._parts(item)) for item in _trees(zorder, "column")) if zorder else (),
        )

    def _explain_optimize(self, tree: Tree[Token]) -> st.ExplainOptimize:
        return st.ExplainOptimize(explained=self._optimize(next(_trees(tree, "optimize"))))

    def _history(self, tree: Tree[Token]) -> st.DescribeHistory:
        limit = self._token(tree, "INTEGER")
        return st.DescribeHistory(table=self._table(tree), limit=None if limit is None else _whole_number(limit))

    def _detail(self, tree: Tree[Token]) -> st.DescribeDetail:
        return st.DescribeDetail(table=self._table(tree))

    def _restore(self, tree: Tree[Token]) -> st.RestoreStatement:
        to = self._travel(tree)
        assert to is not None
        return st.RestoreStatement(table=self._table(tree), to=to)

    def _convert(self, tree: Tree[Token]) -> st.ConvertToDelta:
        schema = next(_trees(tree, "partition_schema"), None)
        return st.ConvertToDelta(
            table=self._table(tree),
            statistics=not self._has(tree, "NO_STATISTICS"),
            partition_schema=self._slice(schema) if schema else None,
        )

    def _clone(self, tree: Tree[Token]) -> st.CloneStatement:
        table, source = (self._parts(item) for item in _trees(tree, "table"))
        kind = self._token(tree, "CLONE_KIND")
        for option in ("properties", "location"):
            self._once(list(_trees(tree, option)), option.upper())
        location = next(_trees(tree, "location"), None)
        properties = {}
        for item in next(_trees(tree, "properties"), Tree("properties", [])).children:
            assert isinstance(item, Tree)
            *key, value = item.children
            names = [self._name(part) if isinstance(part, Tree) else unquote_string(str(part)) for part in key]
            quoted = isinstance(value, Token) and value.type == "STRING"
            properties[".".join(names)] = unquote_string(str(value)) if quoted else str(value).lower()
        return st.CloneStatement(
            table=table,
            source=source,
            shallow=kind is not None and kind.upper() == "SHALLOW",
            replace=self._has(tree, "OR_REPLACE"),
            if_not_exists=self._has(tree, "IF_NOT_EXISTS"),
            at=self._travel(tree),
            properties=properties,
            location=unquote_string(str(location.children[0])) if location else None,
        )

    def _reorg(self, tree: Tree[Token]) -> st.Reorg:
        return st.Reorg(table=self._table(tree), where=self._where(tree))

    def _drop_feature(self, tree: Tree[Token]) -> st.DropFeatureStatement:
        text = self._token(tree, "STRING")
        feature = unquote_string(text) if text is not None else self._name(next(_trees(tree, "name")))
        return st.DropFeatureStatement(
            table=self._table(tree), feature=feature, truncate_history=self._has(tree, "TRUNCATE_HISTORY")
        )

    def _sync_identity(self, tree: Tree[Token]) -> st.SyncIdentityStatement:
        return st.SyncIdentityStatement(table=self._table(tree), column=self._name(next(_trees(tree, "name"))))

    def _fsck(self, tree: Tree[Token]) -> st.FsckStatement:
        return st.FsckStatement(table=self._table(tree), dry_run=any(_trees(tree, "dry_run")))

    # --- parts -------------------------------------------------------------------------------------------

    def _table(self, tree: Tree[Token]) -> st.TableName:
        path = next(_trees(tree, "path"), None)
        if path is not None:
            return st.QuotedPath(("delta", unquote_string(str(path.children[0]))))
        return self._parts(next(_trees(tree, "table")))

    def _parts(self, tree: Tree[Token]) -> st.TableName:
        return tuple(self._name(item) for item in _trees(tree, "name"))

    def _name(self, tree: Tree[Token]) -> str:
        token = str(tree.children[0])
        return token[1:-1].replace("``", "`") if token.startswith("`") else token

    def _where(self, tree: Tree[Token]) -> str | None:
        where = next(_trees(tree, "where"), None)
        return None if where is None else self._slice(where)[len("WHERE") :].strip()

    def _travel(self, tree: Tree[Token]) -> st.Travel | None:
        version, moment = next(_trees(tree, "at_version"), None), next(_trees(tree, "at_timestamp"), None)
        if version is not None:
            token = version.children[0]
            assert isinstance(token, Token)
            text = unquote_string(token) if token.type == "STRING" else str(token)
            if not text.strip().isdigit():
                raise syntax_error(self._text, token.line or 1, token.column or 1, str(token), "a version is a number")
            return st.Travel(version=_whole_number(text))
        return st.Travel(timestamp_sql=self._slice(next(_trees(moment, "moment")))) if moment is not None else None

    def _slice(self, tree: Tree[Token]) -> str:
        return self._text[tree.meta.start_pos : tree.meta.end_pos]

    def _has(self, tree: Tree[Token], kind: str) -> bool:
        return self._token(tree, kind) is not None

    def _token(self, tree: Tree[Token], kind: str) -> str | None:
        return next((str(item) for item in tree.children if isinstance(item, Token) and item.type == kind), None)

    def _once(self, found: list[Any], what: str) -> None:
        if len(found) > 1:
            item = found[1]
            line, column = (item.line, item.column) if isinstance(item, Token) else (item.meta.line, item.meta.column)
            raise syntax_error(self._text, line or 1, column or 1, what, "it is given twice")


_RULES: Final[Mapping[str, Callable[[_Reader, Tree[Token]], st.Statement]]] = {
    "vacuum": _Reader._vacuum,
    "generate": _Reader._generate,
    "optimize": _Reader._optimize,
    "explain_optimize": _Reader._explain_optimize,
    "history": _Reader._history,
    "detail": _Reader._detail,
    "restore": _Reader._restore,
    "convert": _Reader._convert,
    "clone": _Reader._clone,
    "reorg": _Reader._reorg,
    "drop_feature": _Reader._drop_feature,
    "sync_identity": _Reader._sync_identity,
    "fsck": _Reader._fsck,
}
"""The method that reads the tree of each statement rule of the grammar."""


def _whole_number(digits: str) -> int:
    """Convert digits to a number, capped where it exceeds any version or count."""
    return int(digits) if len(digits) < _MOST_DIGITS else 10**_MOST_DIGITS


def unquote_string(text: str) -> str:
    r"""Return the value of an SQL string literal.

    Example:
        >>> unquote_string("'it''s'"), unquote_string(r'"a\tb"')
        ("it's", 'a\tb')
    """
    quote, body = text[0], text[1:-1]
    body = body.replace(quote * 2, quote)
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found.group(1), found.group(1)), body, flags=re.DOTALL)


def syntax_error(text: str, line: int, column: int, token: str, why: str = "") -> ParseError:
    """Build the error for a token, with a mark under it.

    Args:
        text: The statement.
        line: Line of the token, from 1.
        column: Column of the token, from 1.
        token: The token.
        why: What is wrong with it.
    """
    lines = text.replace("\r\n", "\n").split("\n")  # The parser counts lines this way.
    marked = [*lines[:line], "-" * (column - 1) + "^^^", *lines[line:]]
    end = f": {why}" if why else ""
    return ParseError(
        f"Syntax error at or near {token}{end} (line {line}, pos {column - 1})\n\n== SQL ==\n" + "\n".join(marked),
        line=line,
        column=column,
        condition=Condition.of("PARSE_SYNTAX_ERROR", error=token, hint=""),
    )


def _explained(text: str, error: UnexpectedInput) -> ParseError:
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        return syntax_error(text, error.line, error.column, repr(str(error.token)), _expected(error.accepts or ()))
    if isinstance(error, UnexpectedCharacters):
        expected = _expected(error.allowed or ())
        return syntax_error(text, error.line, error.column, repr(text[error.pos_in_stream or 0]), expected)
    lines = text.rstrip().split("\n")
    accepted = getattr(error, "accepts", None) or (error.expected if isinstance(error, UnexpectedEOF) else ())
    return syntax_error(text, len(lines), len(lines[-1]) + 1, "the end of the statement", _expected(accepted))


_SHOWN: Final = {
    "WORD": "a name", "QUOTED": "a name", "STRING": "a string", "INTEGER": "a number", "NUMBER": "a number",
    "LPAR": "'('", "RPAR": "')'", "COMMA": "','", "DOT": "'.'", "EQUAL": "'='", "_DESCRIBE": "DESCRIBE",
    "_HOURS": "HOURS", "VACUUM_MODE": "LITE", "CLONE_KIND": "SHALLOW", "$END": "the end", "SEMICOLON": "the end",
}  # fmt: skip


def _expected(kinds: Any) -> str:
    shown = sorted({_SHOWN.get(kind, kind.replace("_", " ").strip()) for kind in kinds if kind != "OPERATOR"})
    if not shown or len(shown) > 12:
        return ""
    return "expected " + (f"{', '.join(shown[:-1])} or {shown[-1]}" if len(shown) > 1 else shown[0])
