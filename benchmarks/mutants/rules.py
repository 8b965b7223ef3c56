"""Mutants made by rule: every site of the sources at which a rule applies, and what the rule makes of it."""

import ast
import copy
import difflib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "scheduler" / "octavo_scheduler"
JUDGES = {"audit.py", "auditor.py", "ledger.py"}
"""They find nothing in a sound core; tests/scheduler/core/test_auditor.py breaks pools to see that they would."""
NOT_ASKED = {"explain.py", "outlook.py", "turns.py", "words.py", "page_map.py"}
"""They only answer questions, and the simulation asks none."""
NOT_MUTATED = {"__init__.py", *JUDGES, *NOT_ASKED}

SWAPPED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
TURNED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult}
SILENT_CALLS = ("log.", "super().__init__")
"""Statements that begin so are not dropped: what is logged is nobody's promise."""


@dataclass(frozen=True)
class Mutant:
    """`source` is the whole module with the mistake in it."""

    name: str
    module: str
    line: int
    diff: str
    source: str
    is_by_rule: bool

    @property
    def path(self) -> Path:
        return ROOT / "scheduler" / Path(*self.module.split(".")).with_suffix(".py")


def modules() -> list[Path]:
    """What is mutated: the core, and what stands between it and the link."""
    core = [path for path in sorted((PACKAGE / "core").glob("*.py")) if path.name not in NOT_MUTATED]
    return [*core, PACKAGE / "loop.py", PACKAGE / "member.py", PACKAGE / "wire.py"]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "scheduler").with_suffix("").parts)


# The rules: each takes a node (a copy, which it may change) and says what stands in its place, or None.


def negate_condition(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return node
    return None


def negate_filter(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.comprehension) and node.ifs:
        node.ifs[0] = ast.UnaryOp(ast.Not(), node.ifs[0])
        return node
    return None


def swap_comparison(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        node.ops[0] = SWAPPED[type(node.ops[0])]()
        return node
    return None


def drop_statement(node: ast.AST) -> ast.AST | None:
    is_silent = ast.unparse(node).startswith(SILENT_CALLS) if isinstance(node, ast.Expr) else False
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.Delete) and not is_silent and not is_text:
        return ast.Pass()
    return None


def change_number(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return ast.Constant(node.value + 1)
    return None


def change_truth(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return ast.Constant(not node.value)
    return None


def swap_and_or(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return node
    return None


def turn_arithmetic(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in TURNED:
        node.op = TURNED[type(node.op)]()
        return node
    return None


def swap_min_max(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        node.func.id = "max" if node.func.id == "min" else "min"
        return node
    return None


def leave_loop(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Continue | ast.Break):
        return ast.Break() if isinstance(node, ast.Continue) else ast.Continue()
    return None


def forget_not(node: ast.AST) -> ast.AST | None:
    return node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else None


def return_early(node: ast.AST) -> ast.AST | None:
    """A loop that ends after its first turn."""
    if isinstance(node, ast.For):
        node.body.append(ast.Break())
        return node
    return None


RULES: tuple[Callable[[ast.AST], ast.AST | None], ...] = (
    negate_condition,
    negate_filter,
    swap_comparison,
    drop_statement,
    change_number,
    change_truth,
    swap_and_or,
    turn_arithmetic,
    swap_min_max,
    leave_loop,
    forget_not,
    return_early,
)


@dataclass(frozen=True)
class Site:
    """Node number `index` of a module's tree, in the order of `ast.walk`, at which a rule applies."""

    path: Path
    index: int
    line: int
    rule: Callable[[ast.AST], ast.AST | None]
    rank: str
    """A hash of what the site looks like: sites are sampled by it, so that other code may change without other samples."""


@cache
def sites() -> tuple[Site, ...]:
    found: list[Site] = []
    for path in modules():
        tree = ast.parse(path.read_text())
        inside = set(map(id, _inside_functions(tree)))
        seen: dict[str, int] = {}
        for index, node in enumerate(ast.walk(tree)):
            if id(node) not in inside:
                continue
            for rule in RULES:
                if rule(copy.deepcopy(node)) is not None:
                    look = f"{module_name(path)} {rule.__name__} {ast.unparse(node)}"
                    seen[look] = seen.get(look, 0) + 1
                    rank = hashlib.sha256(f"{look} {seen[look]}".encode()).hexdigest()
                    found.append(Site(path, index, getattr(node, "lineno", 0), rule, rank))
    return tuple(found)


def _inside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run when a function is called: no annotations, no texts of messages, no asserts, no logging."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                yield from _running(statement)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Assert | ast.JoinedStr | ast.FunctionDef | ast.Raise):
        return
    if isinstance(node, ast.Expr) and ast.unparse(node).startswith(SILENT_CALLS):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _running(child)


def mutate(site: Site) -> Mutant:
    original = ast.parse(site.path.read_text())
    mutated = copy.deepcopy(original)
    target = next(node for index, node in enumerate(ast.walk(mutated)) if index == site.index)
    for parent in ast.walk(mutated):
        for name, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, name, site.rule(target))
            elif isinstance(value, list) and any(child is target for child in value):
                value[next(i for i, child in enumerate(value) if child is target)] = site.rule(target)
    source = ast.unparse(ast.fix_missing_locations(mutated))
    name = f"{site.path.name}:{site.line} {site.rule.__name__.replace('_', ' ')}"
    return Mutant(name, module_name(site.path), site.line, difference(ast.unparse(original), source), source, True)


def difference(old: str, new: str) -> str:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def sample(count: int) -> list[Mutant]:
    """The first `count` sites by rank, as mutants."""
    return [mutate(site) for site in sorted(sites(), key=lambda site: site.rank)[:count]]
