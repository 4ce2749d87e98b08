"""Changes one place of a module's source at a time, so that the tests can show whether they notice.

Each mutant has a name that survives moves and reformatting: where it is, the statement, and what became of what.
Left alone: texts for people (messages, hints, docstrings), annotations, imports and assertions.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_ORDER = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Div: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitXor: ast.BitAnd, ast.Pow: ast.Mult,
}  # fmt: skip
_NAMES = {
    "lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "eq_missing": "eq", "is_null": "is_not_null",
    "is_not_null": "is_null", "min": "max", "max": "min", "any": "all", "all": "any", "starts_with": "ends_with",
    "startswith": "endswith", "lstrip": "rstrip", "rstrip": "lstrip", "bisect_left": "bisect_right",
    "strip_prefix": "strip_suffix", "intersect1d": "union1d", "setdiff1d": "union1d",
    "removeprefix": "removesuffix", "rjust": "ljust", "ljust": "rjust", "fullmatch": "match", "partition": "rpartition",
}  # fmt: skip
_PASSES_ON = frozenset({"sorted", "set", "frozenset", "abs", "reversed"})
_SAME_KIND = frozenset({
    "astimezone", "astype", "casefold", "cast", "clone", "copy", "difference", "drop_nulls", "fill_null",
    "filter", "floor", "head", "intersection", "limit", "ljust", "lower", "lstrip", "normalize", "removeprefix",
    "removesuffix", "rename", "replace", "replace_many", "reverse", "rjust", "round", "rstrip", "sort", "strip",
    "strip_prefix", "strip_suffix", "tail", "union", "unique", "upper", "with_columns",
})  # fmt: skip
"""Methods that give what they are called on in another form, so that a call can be left out."""
_FOR_PEOPLE = frozenset({"hint", "reason", "message", "help"})
_NOT_WITHIN = frozenset({"body", "orelse", "finalbody", "handlers", "decorator_list", "type_params"})
_LAYOUT = re.compile(r"[<>][a-zA-Z0-9]+")
_LOGS = re.compile(r"_?log(ger)?$", re.IGNORECASE)
_HEADER = 110


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change.

    Args:
        name: ``module:function | statement | old -> new``; unique within the module.
        line: Of the statement.
        source: Makes the changed module's text.
        reach: The first lines of the statements of which one runs where a test can notice; None where that is unknown.
    """

    name: str
    line: int
    source: Callable[[], str] = field(compare=False)
    reach: frozenset[int] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class _Place:
    parent: ast.AST
    field: str
    index: int | None

    def put(self, node: Any) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


@dataclass(frozen=True, slots=True)
class _Change:
    place: _Place
    old: Any
    new: Any
    was: str
    becomes: str


@dataclass(frozen=True, slots=True)
class _Where:
    function: str
    statement: ast.stmt | None
    may_be_none: bool = False
    tail: bool = False
    alone: bool = False
    within: bool = False


def mutants_of(source: str, module: str) -> list[Mutant]:
    """All changes of a module, in the order of the source.

    Args:
        source: Python text.
        module: Its dotted name, for the mutants' names.
    """
    tree = ast.parse(source)
    imported, uses = _imported(tree), _uses(tree)
    found: list[Mutant] = []
    seen: Counter[str] = Counter()
    for change, where in _changes(tree, imported):
        assert where.statement is not None
        header = " ".join(_header(where.statement).split())
        name = f"{module}:{where.function} | {header} | {change.was} -> {change.becomes}"
        seen[name] += 1
        number = f" #{seen[name]}" if seen[name] > 1 else ""
        line = where.statement.lineno
        reach = frozenset((line,)) if where.within else uses.get(_constant_of(where.statement))
        found.append(Mutant(name + number, line, lambda change=change: _text(tree, change), reach))  # type: ignore[misc]
    return found


def _constant_of(statement: ast.stmt) -> str:
    """The private name that a statement of a module gives a value; empty if there is none."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    name = targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""
    return name if name.startswith("_") else ""


def _uses(tree: ast.Module) -> dict[str, frozenset[int]]:
    """Private names of a module that only its functions use -> the first lines of the statements that do."""
    names = {name for statement in tree.body if (name := _constant_of(statement))}
    lines: dict[str, set[int]] = {name: set() for name in names}
    elsewhere: set[str] = set()

    def visit(node: ast.AST, line: int, within: bool) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
            lines[node.id].add(line)
            elsewhere.update(() if within else (node.id,))
        for child in ast.iter_child_nodes(node):
            inside = within or (isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and child in node.body)
            visit(child, child.lineno if isinstance(child, ast.stmt) else line, inside)

    visit(tree, 0, False)
    return {name: frozenset(found) for name, found in lines.items() if name not in elsewhere}


def marked(source: str, mark: str) -> str:
    """A module's text in which each statement of a function first calls a function with its line."""
    tree = ast.parse(source)
    for function in [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]:
        _mark_block(function, mark)
    return ast.unparse(tree)


def _mark_block(parent: ast.AST, mark: str) -> None:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            calls = [ast.parse(f"{mark}({statement.lineno})").body[0] for statement in block]
            for statement in block:
                if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    _mark_block(statement, mark)
            setattr(parent, name, [item for pair in zip(calls, block, strict=True) for item in pair])
    for handler in (*getattr(parent, "handlers", ()), *getattr(parent, "cases", ())):
        _mark_block(handler, mark)


def _text(tree: ast.Module, change: _Change) -> str:
    change.place.put(change.new)
    try:
        return ast.unparse(tree)
    finally:
        change.place.put(change.old)


def _header(statement: ast.stmt) -> str:
    if isinstance(statement, (ast.If, ast.While)):
        return _cut(f"{'if' if isinstance(statement, ast.If) else 'while'} {ast.unparse(statement.test)}")
    bodiless = copy.copy(statement)
    for name in _NOT_WITHIN:
        if hasattr(bodiless, name):
            setattr(bodiless, name, [])
    return _cut(ast.unparse(bodiless).rstrip(":"))


def _cut(text: str) -> str:
    text = " ".join(text.split()).replace(" | ", " ¦ ")
    return text if len(text) <= _HEADER else text[: _HEADER - 1] + "…"


def _imported(tree: ast.Module) -> frozenset[str]:
    names = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    return frozenset(names)


def _changes(tree: ast.Module, imported: frozenset[str]) -> Iterator[tuple[_Change, _Where]]:
    yield from _of_block(tree, "body", _Where("", None), imported, in_function=False)


def _of_block(
    parent: ast.AST, name: str, where: _Where, imported: frozenset[str], *, in_function: bool
) -> Iterator[tuple[_Change, _Where]]:
    block = getattr(parent, name)
    sole = len(block) == 1 and isinstance(parent, ast.If) and name == "body" and not parent.orelse
    for index, statement in enumerate(block):
        last = index == len(block) - 1 and isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef))
        here = _Where(where.function, statement, where.may_be_none, last, sole, within=in_function)
        yield from _of_statement(_Place(parent, name, index), statement, here, imported, in_function=in_function)


def _of_statement(
    place: _Place, statement: ast.stmt, where: _Where, imported: frozenset[str], *, in_function: bool
) -> Iterator[tuple[_Change, _Where]]:
    if _is_left_alone(statement):
        return
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        returns = getattr(statement, "returns", None)
        optional = returns is not None and re.search(r"\bNone\b|\bAny\b", ast.unparse(returns)) is not None
        inner = _Where(f"{where.function}.{statement.name}".lstrip("."), statement, optional)
        if not isinstance(statement, ast.ClassDef):
            for expression_place, default in _children(statement.args, ("defaults", "kw_defaults")):
                for change in _of_expression(expression_place, default, imported):
                    yield change, inner
        function = in_function or not isinstance(statement, ast.ClassDef)
        yield from _of_block(statement, "body", inner, imported, in_function=function)
        return
    for change in _whole(place, statement, where, in_function=in_function):
        yield change, where
    if not isinstance(statement, ast.Raise):
        for child_place, child in _children(statement):
            if isinstance(child, ast.expr):
                for change in _of_expression(child_place, child, imported, condition=child_place.field == "test"):
                    yield change, where
            elif isinstance(child, ast.withitem):
                for change in _of_expression(_Place(child, "context_expr", None), child.context_expr, imported):
                    yield change, where
    for block in ("body", "orelse", "finalbody"):
        if getattr(statement, block, None):
            yield from _of_block(statement, block, where, imported, in_function=in_function)
    for handler in getattr(statement, "handlers", []):
        if not (len(handler.body) == 1 and isinstance(handler.body[0], ast.Raise) and handler.body[0].exc is None):
            caught = _cut("except " + (ast.unparse(handler.type) if handler.type else ""))
            put = _Place(handler, "body", None)
            first = _Where(where.function, handler.body[0], within=in_function)
            yield _Change(put, handler.body, [ast.Raise()], caught, "raise on"), first
        yield from _of_block(handler, "body", where, imported, in_function=in_function)
    for case in getattr(statement, "cases", []):
        yield from _of_block(case, "body", where, imported, in_function=in_function)


def _is_left_alone(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.Assert, ast.Pass, ast.Global, ast.Nonlocal)):
        return True
    if isinstance(statement, ast.Expr):
        call = statement.value
        if isinstance(call, ast.Constant):
            return True  # a docstring
        return isinstance(call, ast.Call) and _is_log(call)
    if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
        return True
    if isinstance(statement, ast.AnnAssign) and "TypeAlias" in ast.unparse(statement.annotation):
        return True
    return isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"


def _is_log(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and bool(_LOGS.match(function.value.id))
    )


def _whole(place: _Place, statement: ast.stmt, where: _Where, *, in_function: bool) -> Iterator[_Change]:
    """Changes of a statement as a whole: dropped, or with its condition decided."""
    if isinstance(statement, (ast.If, ast.While)):
        test = _Place(statement, "test", None)
        for value in _decided(statement.test) if isinstance(statement, ast.If) else (False,):
            yield _Change(test, statement.test, ast.Constant(value), "condition", str(value))
    if isinstance(statement, ast.Return):
        value = statement.value
        if value is not None and not isinstance(value, ast.Constant) and where.may_be_none:
            yield _Change(_Place(statement, "value", None), value, ast.Constant(None), "value", "None")
        if not where.tail and not where.alone:
            yield _Change(place, statement, ast.Pass(), "statement", "dropped")
    elif isinstance(statement, (ast.Raise, ast.Continue, ast.Break, ast.Expr, ast.AugAssign, ast.Delete)):
        if not where.alone:
            yield _Change(place, statement, ast.Pass(), "statement", "dropped")
        if isinstance(statement, ast.Continue):
            yield _Change(place, statement, ast.Break(), "continue", "break")
        if isinstance(statement, ast.Break):
            yield _Change(place, statement, ast.Continue(), "break", "continue")
        if isinstance(statement, ast.AugAssign):
            yield from _augmented(statement)
    elif (
        in_function
        and isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], (ast.Attribute, ast.Subscript))
    ):
        yield _Change(place, statement, ast.Pass(), "statement", "dropped")


def _decided(test: ast.expr) -> tuple[bool, ...]:
    """Outcomes to try; that of an ``and`` being true is tried by leaving out its parts, and so on."""
    if isinstance(test, ast.BoolOp):
        return (False,) if isinstance(test.op, ast.And) else (True,)
    return (True, False)


def _augmented(statement: ast.AugAssign) -> Iterator[_Change]:
    other = _ARITHMETIC.get(type(statement.op))
    if other is not None:
        put = _Place(statement, "op", None)
        yield _Change(put, statement.op, other(), _operator(statement.op), _operator(other()))


def _operator(op: ast.AST) -> str:
    names = {ast.And: "and", ast.Or: "or"}
    if type(op) in names:
        return names[type(op)]
    if isinstance(op, ast.cmpop):
        return ast.unparse(ast.Compare(ast.Name("a"), [op], [ast.Name("b")]))[2:-2]
    return ast.unparse(ast.BinOp(ast.Name("a"), op, ast.Name("b")))[2:-2]  # type: ignore[arg-type]


def _children(node: ast.AST, only: tuple[str, ...] = ()) -> Iterator[tuple[_Place, Any]]:
    """The expressions within a node, without annotations, and of a statement without its blocks."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns") or (isinstance(node, ast.stmt) and name in _NOT_WITHIN):
            continue
        if only and name not in only:
            continue
        for index, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(item, (ast.expr, ast.withitem, ast.comprehension, ast.keyword, ast.arguments)):
                yield _Place(node, name, index), item


def _of_expression(place: _Place, node: Any, imported: frozenset[str], *, condition: bool = False) -> Iterator[_Change]:
    """Changes in an expression. What only turns a condition round is left out: deciding it shows more."""
    if isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.keyword):
        if node.arg not in _FOR_PEOPLE:
            yield from _of_expression(_Place(node, "value", None), node.value, imported)
        return
    if not (condition and isinstance(node, ast.UnaryOp)):
        for new, was, becomes in _variants(node, imported):
            yield _Change(place, node, new, was, becomes)
    if isinstance(node, ast.comprehension):
        for index, test in enumerate(node.ifs):
            for value in _decided(test):
                put = _Place(node, "ifs", index)
                yield _Change(put, test, ast.Constant(value), _cut(ast.unparse(test)), str(value))
    if isinstance(node, ast.Compare):
        for index, op in enumerate(node.ops):
            others = _ORDER[type(op)]
            for other in others[: len(others) - 1] if condition else others:
                yield _Change(_Place(node, "ops", index), op, other(), _cut(ast.unparse(node)), _operator(other()))
    for child_place, child in _children(node):
        if isinstance(node, ast.Call) and child_place.field == "func" and isinstance(child, ast.Name):
            continue
        if isinstance(child, ast.keyword) and child.arg == "strict" and ast.unparse(node).startswith("zip("):
            continue  # an assertion
        decides = (
            isinstance(node, ast.BoolOp)
            or child_place.field in ("test", "ifs")
            or (condition and isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))
        )
        yield from _of_expression(child_place, child, imported, condition=decides)


def _variants(node: ast.AST, imported: frozenset[str]) -> Iterator[tuple[ast.AST, str, str]]:
    if isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.BoolOp):
        was = _cut(ast.unparse(node))
        for index in range(len(node.values)):
            rest = node.values[:index] + node.values[index + 1 :]
            yield (rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)), was, f"without part {index + 1}"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert, ast.USub)):
        yield node.operand, _cut(ast.unparse(node)), "without its sign"
    elif isinstance(node, ast.BinOp):
        other_kind = _ARITHMETIC.get(type(node.op))
        was = _cut(ast.unparse(node))
        if other_kind is not None:
            yield ast.BinOp(node.left, other_kind(), node.right), was, _operator(other_kind())
        if isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)):  # of sums and the like nothing is learned by it
            yield node.left, was, "left side"
            yield node.right, was, "right side"
    elif isinstance(node, ast.IfExp):
        was = _cut(ast.unparse(node))
        yield node.body, was, "always the first"
        yield node.orelse, was, "always the second"
    elif isinstance(node, ast.Slice):
        for name in ("lower", "upper", "step"):
            if getattr(node, name) is not None:
                new = copy.copy(node)
                setattr(new, name, None)
                yield new, _cut(ast.unparse(node)), f"without {name}"
    elif isinstance(node, ast.Call):
        yield from _calls(node, imported)
    elif isinstance(node, ast.Attribute) and node.attr in _NAMES:
        new_name = _NAMES[node.attr]
        yield ast.Attribute(node.value, new_name, node.ctx), _cut(ast.unparse(node)), new_name


def _constants(node: ast.Constant) -> Iterator[tuple[ast.AST, str, str]]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value), str(value), str(not value)
    elif isinstance(value, int):
        for other in (value + 1, value - 1):
            yield ast.Constant(other), str(value), str(other)
    elif isinstance(value, str) and " " not in value.strip() and len(value) <= 60 and not _LAYOUT.fullmatch(value):
        other = value + "~" if len(value) > 1 else "~"  # of a set of characters to strip, one more changes little
        yield ast.Constant(other), repr(value), repr(other)
    elif isinstance(value, bytes):
        yield ast.Constant(value + b"~"), repr(value), repr(value + b"~")


def _calls(node: ast.Call, imported: frozenset[str]) -> Iterator[tuple[ast.AST, str, str]]:
    function, was = node.func, _cut(ast.unparse(node))
    if isinstance(function, ast.Name):
        if function.id in _PASSES_ON and len(node.args) == 1:
            yield node.args[0], was, f"without {function.id}"
        elif function.id in ("min", "max", "any", "all"):
            other = _NAMES[function.id]
            yield ast.Call(ast.Name(other), node.args, node.keywords), was, other
    elif isinstance(function, ast.Attribute):
        owner = function.value
        named = isinstance(owner, ast.Name) and (owner.id in imported or owner.id in ("self", "cls"))
        if function.attr in _SAME_KIND and not named:
            yield owner, was, f"without .{function.attr}()"
    if not (isinstance(function, ast.Name) and function.id.lstrip("_")[:1].isupper()):
        for index, keyword in enumerate(node.keywords):
            if keyword.arg and keyword.arg not in _FOR_PEOPLE and not isinstance(keyword.value, ast.Constant):
                rest = node.keywords[:index] + node.keywords[index + 1 :]
                yield ast.Call(function, node.args, rest), was, f"without {keyword.arg}="
