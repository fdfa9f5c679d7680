"""How much there is to read: lines, files, settings, rules, import circles, names that are participles.

python benchmarks/size.py
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTICIPLES = {
    "asked",
    "found",
    "given",
    "kept",
    "made",
    "meant",
    "named",
    "said",
    "seen",
    "shown",
    "taken",
    "told",
    "wanted",
}


def main() -> None:
    sources = sorted((ROOT / "src").rglob("*.py"))
    tests = sorted((ROOT / "tests").rglob("*.py"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    names = Counter(name for path in sources for name in variables(path) if name in PARTICIPLES)
    circles = [sorted(circle) for circle in import_circles(sources)]
    rows = {
        "lines of src": lines(sources),
        "files of src": len(sources),
        "lines of tests": lines(tests),
        "lines of rules": lines((ROOT / "rules").glob("*.smk")),
        "lines of config.yaml": lines([ROOT / "config.yaml"]),
        "settings": len(setting_keys()),
        "import circles": len(circles),
        "participles as names": sum(names.values()),
        '"told" in src': len(re.findall(r"\btold\b", text)),
        "fmt: skip in src": text.count("# fmt: skip"),
    }
    for name, value in rows.items():
        print(f"{value:>7,}  {name}")
    for circle in circles:
        print("circle:", ", ".join(circle))
    print("participles:", ", ".join(f"{name} {count}" for name, count in names.most_common()))


def lines(paths) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def variables(path: Path) -> Iterator[str]:
    """Names that a module assigns: variables, parameters, functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def setting_keys() -> list[str]:
    from cdpr.settings import Settings

    def leaves(value, path: str) -> Iterator[str]:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                yield from leaves(inner, f"{path}.{key}" if path else key)
        else:
            yield path

    entries = ("experiments", "agents", "models")  # lists of entries in files of their own
    return list(leaves(Settings().model_dump(exclude=set(entries)), ""))


def imports(path: Path) -> Iterator[str]:
    """Modules of the project that a module imports when it is loaded."""
    package = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    here = package.removesuffix(".__init__")
    for node in module_level(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here.split(".") if path.name == "__init__.py" else here.split(".")[:-1]
            base = base[: len(base) - node.level + 1] if node.level else []
            target = ".".join([*base, *([node.module] if node.module else [])])
            yield target
            yield from (f"{target}.{alias.name}" for alias in node.names)


def module_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements outside functions, also those for type checkers: a reader follows them."""
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.If | ast.Try):
            pending += [*node.body, *node.orelse]


def import_circles(sources: list[Path]) -> list[set[str]]:
    """Strongly connected modules (Tarjan), packages left out: `__init__` only lists what a package offers."""
    modules = {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts): path
        for path in sources
        if path.name != "__init__.py"
    }
    graph = {name: {target for target in imports(path) if target in modules} for name, path in modules.items()}
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[set[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for target in graph[name]:
            if target not in order:
                visit(target)
            if target in stack:
                low[name] = min(low[name], low[target])
        if low[name] == order[name]:
            circle = set(stack[stack.index(name) :])
            del stack[stack.index(name) :]
            if len(circle) > 1:
                circles.append(circle)

    sys.setrecursionlimit(10_000)
    for name in graph:
        if name not in order:
            visit(name)
    return circles


if __name__ == "__main__":
    main()
