"""What mutants are: every place in a file where one small change makes another program, and the sources so changed."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
Edit = Callable[[ast.AST], ast.AST]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change: where and of what kind. `function`: in whose body; empty if it runs as the module is imported."""

    file: str
    module: str
    line: int
    end: int
    kind: str
    place: int
    number: int
    function: str = ""

    @property
    def name(self) -> str:
        """What tells it from any other of the same sources."""
        return f"{self.file}:{self.line}:{self.place}:{self.number}:{self.kind}"


def mutants_of(path: Path, root: Path) -> Iterator[Mutant]:
    """Yield all mutants of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_alone = _left_alone(tree)
    functions = _functions(tree)
    for place, node in enumerate(ast.walk(tree)):
        for number, (kind, _) in enumerate(_edits(node) if node not in left_alone else ()):
            yield Mutant(
                file=path.relative_to(root).as_posix(),
                module=".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"),
                line=node.lineno,  # type: ignore[attr-defined]
                end=node.end_lineno or node.lineno,  # type: ignore[attr-defined]
                kind=kind,
                place=place,
                number=number,
                function=functions.get(node, ""),
            )


def changed_source(mutant: Mutant, root: Path) -> str:
    """Return the file with the change."""
    tree = ast.parse((root / mutant.file).read_text(encoding="utf-8"))
    target = next(node for at, node in enumerate(ast.walk(tree)) if at == mutant.place)
    edit = list(_edits(target))[mutant.number][1]

    class Swap(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return edit(node) if node is target else self.generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Swap().visit(tree)))


def change_of(mutant: Mutant, root: Path) -> str:
    """Return the first line that the change makes differ, before and after."""
    before = ast.unparse(ast.parse((root / mutant.file).read_text(encoding="utf-8"))).splitlines()
    after = changed_source(mutant, root).splitlines()
    at = next(at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1])
    return f"{before[at].strip()[:150]} -> {after[at].strip()[:150]}"


def sampled(mutants: Sequence[Mutant], count: int, *, seed: int) -> list[Mutant]:
    """Draw so many: from each file and kind a share like its share of all, by largest remainder."""
    strata: dict[tuple[str, str], list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        strata[mutant.file, mutant.kind].append(mutant)
    keys = sorted(strata)
    exact = np.array([len(strata[key]) for key in keys]) * min(1.0, count / len(mutants))
    wanted = np.floor(exact + 1e-9).astype(int)
    missing = min(count, len(mutants)) - int(wanted.sum())
    wanted[np.argsort(wanted - exact, kind="stable")[:missing]] += 1
    rng = np.random.default_rng(seed)
    drawn = []
    for key, number in zip(keys, wanted, strict=True):
        order = rng.permutation(len(strata[key]))[:number]
        drawn += [strata[key][at] for at in sorted(order)]
    return [drawn[at] for at in rng.permutation(len(drawn))]  # shuffled: a part of the run is a sample as well


def _edits(node: ast.AST) -> Iterator[tuple[str, Edit]]:
    """Yield what can be changed about a node, at most four things."""
    if isinstance(node, ast.Compare):
        for other in COMPARISONS[type(node.ops[0])]:
            yield "comparison", _setting("ops", [other(), *node.ops[1:]])
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC:
        yield "arithmetic", _setting("op", ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield "boolean", _setting("op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
        yield "boolean" if isinstance(node.op, ast.Not | ast.Invert) else "arithmetic", lambda new: new.operand  # type: ignore[attr-defined]
    elif isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Compare | ast.BoolOp):
        yield "boolean", lambda new: _with(new, "test", ast.UnaryOp(ast.Not(), new.test))  # type: ignore[attr-defined]
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", _setting("value", not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield "constant", _setting("value", node.value + 1)
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "return", _setting("value", ast.Constant(None))
    elif isinstance(node, ast.Expr | ast.Raise) or (
        isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple)
    ):
        yield "deletion", lambda new: ast.Pass()


def _functions(tree: ast.Module) -> dict[ast.AST, str]:
    """Tell for every node in the body of a function whose it is; of nested functions the outermost counts."""
    found: dict[ast.AST, str] = {}
    names: list[str] = []

    def look(node: ast.AST, path: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                names.append(".".join((*path, child.name)))
                found.update((inside, names[-1]) for part in child.body for inside in ast.walk(part))
            elif isinstance(child, ast.ClassDef):
                look(child, (*path, child.name))
            else:
                look(child, path)

    look(tree, ())
    return {node: name for node, name in found.items() if names.count(name) == 1}


def _left_alone(tree: ast.Module) -> set[ast.AST]:
    """Return the nodes that say nothing about behaviour: docstrings, annotations, imports for types, error messages."""
    alone: set[ast.AST] = set()

    def all_of(*nodes: ast.AST | None) -> None:
        for node in nodes:
            alone.update(ast.walk(node) if node is not None else ())

    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.Name):
            all_of(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            all_of(node.returns, *node.decorator_list)
        elif isinstance(node, ast.ClassDef):
            all_of(*node.decorator_list)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            all_of(node.annotation)
        elif isinstance(node, ast.JoinedStr) or _is_for_types(node):
            all_of(node)
    return alone


def _is_for_types(node: ast.AST) -> bool:
    """Tell whether a statement is for type checkers: `if TYPE_CHECKING`, or a name for a type, `Row = Array | None`."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp)):
        return False
    words = [part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)]
    return bool(words) and all(word[0].isupper() or word in ("int", "float", "str", "tuple", "dict") for word in words)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _setting(field: str, value: object) -> Edit:
    return lambda new: _with(new, field, value)


def _with(node: ast.AST, field: str, value: object) -> ast.AST:
    setattr(node, field, value)
    return node
