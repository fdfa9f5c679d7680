"""Small mutations of the code, and whether a test notices each.

    make coverage                                                once: which test runs which line
    python benchmarks/mutations.py credit training --count 60    draw mutations of these packages, and test them

    python benchmarks/mutations.py --at credit/states.py:115     every mutation of a line
    python benchmarks/mutations.py --listed                      those of mutations.tsv, which no test once noticed

A mutation changes one expression or removes one statement: another comparison, sign, constant, argument order or
branch. Each is tested in a copy of the project by the unit tests that run its line, quickest first. `--seed` draws
others. Results are appended to `--out`, so a run that was stopped goes on. A survivor is either a missing test or an
equivalent mutation: one that changes nothing that can be observed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
LISTED = Path(__file__).with_suffix(".tsv")  # file, text, and what stands in its place
COVERAGE = ROOT / "state" / "coverage.sqlite"  # `make coverage` writes it, and the seconds of each test beside it
RESULTS = ROOT / "state" / "mutations.jsonl"
MOST_TESTS = 60  # of one mutation
TIMEOUT = 240.0  # seconds of the tests of one mutation; an endless loop counts as noticed

_COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitOr: ast.BitAnd}
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "fmean": "sum", "sum": "max"}


_SYMMETRIC = ("min", "max", "hypot", "zip")  # the order of their arguments does not matter, or only that of names


@dataclass(frozen=True)
class Mutation:
    """A change of the text of a file, at a line (1-based) and column."""

    file: str
    line: int
    before: str
    after: str
    start: int
    end: int

    def apply(self, text: str) -> str:
        return text[: self.start] + self.after + text[self.end :]


def mutations(path: Path) -> Iterator[Mutation]:
    """Every mutation of a file."""
    text = path.read_text(encoding="utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(text)
    skipped = _not_code(tree)

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(text.splitlines()[line - 1].encode()[:column].decode())

    for node in ast.walk(tree):
        if node in skipped or not hasattr(node, "lineno"):
            continue
        start, end = offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
        for changed in _changes(node):
            after = changed if isinstance(changed, str) else f"({ast.unparse(changed)})"
            yield Mutation(str(path.relative_to(ROOT)), node.lineno, text[start:end], after, start, end)


def _not_code(tree: ast.AST) -> set[ast.AST]:
    """Docstrings, annotations, errors' messages, `__all__` and imports: a change there is no change of behaviour."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr)):
            parts = [node]
        elif isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            parts = [node.returns, *(arg.annotation for arg in ast.walk(node.args) if isinstance(arg, ast.arg)),
                     *node.decorator_list]  # fmt: skip
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts = [node]
        for part in filter(None, parts):
            skipped.update(ast.walk(part))
    return skipped


def _changes(node: ast.AST) -> Iterator[ast.AST | str]:
    """Other forms of a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        yield ast.Compare(node.left, [_COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS and not isinstance(node.left, ast.Constant):
        yield ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
        yield node.values[0]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _FUNCTIONS:
            yield ast.Call(ast.Name(_FUNCTIONS[name]), node.args, node.keywords)
        if len(node.args) > 1 and name not in _SYMMETRIC and not any(isinstance(arg, ast.Starred) for arg in node.args):
            yield ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
    elif isinstance(node, (ast.AugAssign, ast.Continue, ast.Break)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await))
    ):
        yield "pass"
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and node.slice.upper:
        yield ast.Subscript(node.value, ast.Slice(node.slice.lower, None, node.slice.step))


class Covering:
    """Tests by the line that they run, quickest first."""

    def __init__(self) -> None:
        self.base = sqlite3.connect(COVERAGE, check_same_thread=False)
        cases = ElementTree.parse(COVERAGE.with_suffix(".xml")).iter("testcase")
        self.times = {f"{case.get('classname')}::{case.get('name')}": float(case.get("time") or 0) for case in cases}
        files = self.base.execute("SELECT path, id FROM file")
        self.files = {Path(path).as_posix().split("/src/")[-1]: number for path, number in files}

    def tests(self, mutation: Mutation) -> list[str]:
        number = self.files.get(mutation.file.removeprefix("src/"))
        lines = _lines_of_statement(ROOT / mutation.file, mutation.line)
        # An arc is a step from a line to the next one.
        arcs = "SELECT DISTINCT context FROM arc JOIN context ON context.id = context_id WHERE file_id = ? AND context"
        contexts = [row[0] for row in self.base.execute(f"{arcs} != '' AND tono BETWEEN ? AND ?", (number, *lines))]
        # A line that runs at import alone, such as a default, belongs to every test of the file.
        contexts = contexts or [row[0] for row in self.base.execute(f"{arcs} != ''", (number,))]
        names = {context.rpartition("|")[0] for context in contexts}
        # Of a fixture that tests share only the first one's name is known: all tests of its file may look at it.
        files = {context.partition("::")[0] for context in contexts if context.endswith("|setup")}
        return [*sorted(names, key=self._seconds)[:MOST_TESTS], *sorted(files)]

    def _seconds(self, test: str) -> float:
        file, _, name = test.partition("::")
        return self.times.get(f"{file.removesuffix('.py').replace('/', '.')}::{name}", 0.0)


def _lines_of_statement(path: Path, line: int) -> tuple[int, int]:
    """The first and last line of the innermost statement at a line, without the block below it."""
    first = last = line
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.stmt) and node.lineno <= line <= node.end_lineno:  # outer ones come first
            first, last = node.lineno, node.end_lineno
            if block := getattr(node, "body", None):
                last = max(first, block[0].lineno - 1)
    return first, last


class Checkout:
    """A copy of the project, made where its ``with`` begins; tests run in it."""

    def __init__(self, mutation: Mutation | None = None) -> None:
        self.mutation = mutation

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="mutation-"))
        listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True,
                                 text=True, check=True).stdout  # fmt: skip
        for name in filter(lambda name: (ROOT / name).is_file(), listing.splitlines()):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.folder / name)
        (self.folder / ".venv").symlink_to(ROOT / ".venv")
        if self.mutation:
            path = self.folder / self.mutation.file
            path.write_text(self.mutation.apply(path.read_text(encoding="utf-8")), encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder)

    def failing(self, tests: Sequence[str]) -> str:
        """The first of these tests that fails; empty where none does."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", *tests]
        environment = {**os.environ, "PYTHONPATH": str(self.folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(command, cwd=self.folder, env=environment, timeout=TIMEOUT, capture_output=True,
                                  text=True)  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"no end within {TIMEOUT:.0f} s"
        failed = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
        return (failed[1] if failed else f"pytest ends with {done.returncode}") if done.returncode else ""


def test(mutation: Mutation, tests: list[str], unsound: set[str]) -> tuple[str, str]:
    """``caught`` and by which test, ``survived``, or ``not run`` where no unit test runs the line. A test that fails in
    a copy without the mutation too notices nothing; it is added to ``unsound``."""
    if not tests:
        return "not run", ""
    with Checkout(mutation) as changed:
        while failed := changed.failing([*tests, *(f"--deselect={name}" for name in list(unsound))]):
            with Checkout() as same:
                if not failed.startswith("tests/") or not same.failing([failed]):
                    return "caught", failed
            unsound.add(failed)
    return "survived", ""


def draw(packages: list[str], count: int, seed: int) -> list[Mutation]:
    """``count`` mutations, spread over packages and files as their code is."""
    paths = [path for package in packages or [""] for path in sorted((ROOT / "src/cdpr" / package).rglob("*.py"))]
    every = [mutation for path in paths for mutation in mutations(path)]
    return random.Random(seed).sample(every, min(count, len(every)))


def at_lines(places: list[str]) -> list[Mutation]:
    """Every mutation of these lines."""
    chosen: list[Mutation] = []
    for place in places:
        file, _, line = place.partition(":")
        chosen += [m for m in mutations(ROOT / "src/cdpr" / file) if m.line == int(line)]
    return chosen


def listed() -> list[Mutation]:
    """The mutations of :data:`LISTED`. One whose text is not in its file exactly once is printed and left out."""
    chosen: list[Mutation] = []
    for row in LISTED.read_text(encoding="utf-8").splitlines():
        file, before, after = row.split("\t")
        path = ROOT / "src/cdpr" / file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text.count(before) != 1:
            print(f"{LISTED.name}: {file} has {before!r} {text.count(before)} times, not once: write it anew")
            continue
        start = text.index(before)
        line = text.count("\n", 0, start) + 1
        chosen.append(Mutation(f"src/cdpr/{file}", line, before, after, start, start + len(before)))
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", help="packages of src/cdpr (default: all)")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--at", nargs="+", default=[], metavar="FILE:LINE", help="mutations of these lines of src/cdpr")
    parser.add_argument("--listed", action="store_true", help=f"the mutations of {LISTED.name}")
    args = parser.parse_args()
    covering = Covering()
    if args.listed or args.at:
        chosen = listed() if args.listed else at_lines(args.at)
    else:
        chosen = draw(list(args.packages), args.count, args.seed)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    done = {(row["file"], row["line"], row["before"], row["after"]) for row in rows}
    remaining = [m for m in chosen if (m.file, m.line, m.before, m.after) not in done]
    tests = {mutation: covering.tests(mutation) for mutation in remaining}
    unsound: set[str] = set()
    with ThreadPoolExecutor(args.jobs) as pool, args.out.open("a") as out:
        for mutation, (result, by) in zip(
            remaining, pool.map(lambda m: test(m, tests[m], unsound), remaining), strict=True
        ):
            row = {"file": mutation.file, "line": mutation.line, "before": mutation.before, "after": mutation.after,
                   "result": result, "test": by, "tests": len(tests[mutation])}  # fmt: skip
            rows.append(row)
            out.write(json.dumps(row) + "\n")
            out.flush()
            if result != "caught":
                print(f"{result}: {mutation.file}:{mutation.line}\n  - {mutation.before}\n  + {mutation.after}")
    results = [row["result"] for row in rows]
    print({result: results.count(result) for result in ("caught", "survived", "not run")})


if __name__ == "__main__":
    main()
