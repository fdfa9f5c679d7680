"""Damage every input in many ways, and judge how each importer and reader handles it.

    python tests/fuzz/fuzz.py --mutations 3000            # all of them; prints docs/benchmarks/fuzz.csv
    python tests/fuzz/fuzz.py --only clfs --seed 7 --case 123   # one damaged input again, with its outcome

The same seed gives the same damage.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

from targets import REFUSALS, TARGETS, Outcome, Target

LIMIT = 20  # seconds; longer reading counts as a hang


class Hang(BaseException):
    """Reading took too long."""


@dataclass
class Tally:
    """Outcomes of the damaged inputs of a target; ``faults`` are the cases of the three bad kinds."""

    target: str
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: dict[int, str] = field(default_factory=dict)
    slowest: float = 0.0
    seconds: float = 0.0


def fuzz(target: Target, count: int, seed: int = 0, only: int | None = None) -> Tally:
    """Damage an input ``count`` times, each time from the start; ``only``: one of these cases."""
    tally, start = Tally(target.name), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="cdpr-fuzz-") as place:
        whole = Path(place) / "whole"
        target.write(whole)
        before = target.read(whole)
        for case in [only] if only is not None else range(count):
            folder = Path(place) / "damaged"
            shutil.rmtree(folder, ignore_errors=True)
            target.write(folder)
            mutations = target.damage(random.Random(f"{seed}/{target.name}/{case}"), folder)
            case_start = time.perf_counter()
            kind, message = _judge(target, folder, before)
            if kind == LOST and not REMOVING.isdisjoint(mutations):
                kind = LESS_IN
            tally.slowest = max(tally.slowest, time.perf_counter() - case_start)
            tally.outcomes[kind] += 1
            if kind in BAD:
                tally.faults[case] = f"{kind} after {', '.join(mutations)}: {message}"
            if only is not None:
                print(f"{target.name} {case}, {', '.join(mutations)}: {kind}\n{message}")
    tally.seconds = time.perf_counter() - start
    return tally


REFUSED, READ, LESS, LESS_IN = "refused", "read", "less, reported", "less in the file"
LOST, FAULT, HANG = "lost silently", "traceback", "hang"
# These remove data that a reader cannot miss, unless something else in the files refers to it.
REMOVING = {"cut", "cut_at_line", "drop_line", "delete_span", "json dropped", "json replaced", "json exchanged"}
BAD = (LOST, FAULT, HANG)


def _judge(target: Target, folder: Path, before: Outcome) -> tuple[str, str]:
    try:
        with _at_most(LIMIT):
            outcome = target.read(folder)
    except REFUSALS as error:
        message = str(error)
        return (
            (REFUSED, message) if message.replace("\n", " ").isprintable() else (FAULT, f"prints garbage: {message!r}")
        )
    except Hang:
        return HANG, f"more than {LIMIT} s"
    except Exception:
        return FAULT, traceback.format_exc()
    if outcome.lacks(before):
        return LOST, f"{before.amounts} became {outcome.amounts}"
    fewer = any(now < then for now, then in zip(outcome.amounts, before.amounts, strict=True))
    return (LESS if fewer else READ), outcome.text


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def table(tallies: list[Tally]) -> str:
    """The outcomes as CSV."""
    kinds = (REFUSED, READ, LESS, LESS_IN, *BAD)
    lines = [",".join(["reader", "mutations", *(kind.replace(",", "").replace(" ", "_") for kind in kinds),
                       "slowest_seconds"])]  # fmt: skip
    for tally in tallies:
        counts = ",".join(str(tally.outcomes[kind]) for kind in kinds)
        lines.append(f"{tally.target},{tally.outcomes.total()},{counts},{tally.slowest:.2f}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=3000, metavar="N", help="damaged inputs each (default: 3000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="NAME")
    parser.add_argument("--case", type=int, help="this damaged input alone")
    args = parser.parse_args()
    tallies = []
    for name in args.only:
        tallies.append(fuzz(TARGETS[name], args.mutations, args.seed, args.case))
        print(f"{name}: {dict(tallies[-1].outcomes)} in {tallies[-1].seconds:.0f} s", file=sys.stderr, flush=True)
        for case, message in list(tallies[-1].faults.items())[:10]:
            print(f"  case {case}: {message}", file=sys.stderr)
    print(table(tallies))
    return 1 if any(tally.faults for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
