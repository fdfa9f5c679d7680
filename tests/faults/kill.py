"""Kill the miniature of the paper again and again, and see whether its results are those of an undisturbed run.

    python tests/faults/kill.py --kills 20 --seed 0 --out kills.csv
    python tests/faults/kill.py --kills 0 --out kills.csv --page docs/reliability.md    # writes the table of the file

A round is a project in a new folder. Its `snakemake` is started, killed at random, and started again with the same
command until it ends by itself. The seed fixes target, signal and delay of every kill; kills that the file of ``--out``
holds already are not repeated. Leave the sources as they are until it ends: each round copies them.
"""

import argparse
import contextlib
import csv
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import psutil
from tqdm import tqdm

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "workflow")]

from comparison import at_work, beside, differences, leftovers, snapshot
from project import RESULTS, Project

TARGETS = ("main process", "process group", "job", "any process")
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
LONGEST_DELAY = 0.2  # of the seconds of an undisturbed run
MOST_KILLS = 12  # of a round
PATIENCE = 5  # seconds for which a kill waits for its target before another one goes first
STUCK = 400  # seconds without any change of a file
MOST_FAILURES = 3  # starts that fail by themselves, one after another
PAGE_MARKS = ("<!-- kills: begin -->", "<!-- kills: end -->")


@dataclass
class Kill:
    """A kill as it is planned, and what came of it. ``differing`` and ``left`` count for the whole round."""

    seed: int
    number: int
    target: str
    signal: str
    delay: float  # as a share of the longest
    round: int = -1
    process: str = ""
    failed_starts: int = 0
    stall: float = 0.0
    differing: int = 0
    left: int = 0


def planned(seed: int) -> Iterator[Kill]:
    """All kills of a seed, without an end: every target with every signal, in random order, and again."""
    rng, pairs = random.Random(seed), list(itertools.product(TARGETS, SIGNALS))
    for start in itertools.count(step=len(pairs)):
        for number, (target, name) in enumerate(rng.sample(pairs, len(pairs)), start):
            yield Kill(seed, number, target, name, round(rng.random(), 4))


def victims(target: str, main: psutil.Process) -> list[psutil.Process]:
    """The living processes of a run that are such a target."""
    if target in ("main process", "process group"):
        return [main]
    below = [process for process in main.children(recursive=True) if process.status() != psutil.STATUS_ZOMBIE]
    if target == "any process":
        return below
    assert target == "job"  # `python .../cdpr STAGE`
    return [process for process in below if any(word.endswith("/cdpr") for word in process.cmdline()[:2])]


class Run:
    """A `snakemake` of the whole paper in a session of its own. ``stall`` is the longest time in which no file has
    changed since it was last set to zero."""

    def __init__(self, project: Project):
        self.folder, self.stall = project.folder, 0.0
        self._seen, self._since = (0, 0), time.monotonic()
        with (project.folder / "output.txt").open("a") as output:
            self.process = subprocess.Popen(project.command(), cwd=project.folder, env=project.environment,
                                            stdout=output, stderr=output, start_new_session=True)  # fmt: skip

    def lives(self, seconds: float) -> bool:
        """Whether it still runs after this time; returns earlier when it ends. Raises TimeoutError when it is stuck."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            self._look()
            if time.monotonic() > deadline:
                return True
            time.sleep(max(0, min(0.25, deadline - time.monotonic())))
        return False

    def _look(self) -> None:
        times = [time for part in ("results", "state", ".snakemake") for time in _times(self.folder / part)]
        if (seen := (len(times), max(times, default=0))) != self._seen:
            self._seen, self._since = seen, time.monotonic()
        quiet = time.monotonic() - self._since
        self.stall = max(self.stall, quiet)
        if quiet > STUCK:
            raise TimeoutError(f"no file has changed for {STUCK} seconds")

    def strike(self, kills: list[Kill]) -> Kill | None:
        """Execute the first kill, or after a while the first whose target is there; None where the run ends first."""
        waits = time.monotonic() + PATIENCE
        while self.lives(0.0):
            for kill in kills if time.monotonic() > waits else kills[:1]:
                with contextlib.suppress(psutil.Error, ProcessLookupError):  # it ends in this moment
                    if targets := victims(kill.target, psutil.Process(self.process.pid)):
                        self._execute(kill, random.Random(f"{kill.seed}/{kill.number}").choice(targets))
                        return kill
            time.sleep(0.02)
        return None

    def _execute(self, kill: Kill, victim: psutil.Process) -> None:
        kill.process = " ".join(victim.cmdline()[-6:])[:60]
        if kill.target == "process group":
            os.killpg(victim.pid, getattr(signal, kill.signal))
        else:
            victim.send_signal(getattr(signal, kill.signal))


def _times(folder: Path) -> Iterator[int]:
    """When each file and folder below was changed; they may come and go meanwhile."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                yield entry.stat(follow_symlinks=False).st_mtime_ns
            if entry.is_dir(follow_symlinks=False):
                yield from _times(Path(entry.path))


@dataclass
class Reference:
    """An undisturbed run: digests of its results, names of other files, its seconds and its longest stall."""

    results: dict[str, str]
    beside: set[str]
    seconds: float
    stall: float


def new_project(folder: Path) -> Project:
    """A project whose runs put temporary files into a folder of their own."""
    (folder / "tmp").mkdir(parents=True)
    project = Project(folder)
    project.environment["TMPDIR"] = str(folder / "tmp")
    return project


def undisturbed(folder: Path) -> Reference:
    """A run without kills."""
    project, start = new_project(folder), time.monotonic()
    run = Run(project)
    run.lives(float("inf"))
    seconds = time.monotonic() - start
    if run.process.returncode:
        raise SystemExit(f"the undisturbed run fails:\n{(folder / 'output.txt').read_text()[-3000:]}")
    results = snapshot(folder / RESULTS)
    if partial := [name for name in results if "partial" in name]:
        raise SystemExit(f"the undisturbed run leaves {partial}")
    return Reference(results, beside(folder), seconds, run.stall)


def one_round(kills: list[Kill], done: list[Kill], project: Project, seconds: float, bar: tqdm) -> None:
    """Start and kill until a run ends well; moves the kills that hit something from ``kills`` to ``done``."""
    while True:
        run, hits = Run(project), 0
        while kills and run.lives(kills[0].delay * LONGEST_DELAY * seconds) and (kill := run.strike(kills)):
            _note(done, run)
            kills.remove(kill)
            done.append(kill)
            hits += 1
            bar.update()
        run.lives(float("inf"))
        _note(done, run)
        if run.process.returncode == 0:
            return
        if not done:
            raise SystemExit(f"a start before any kill fails:\n{(project.folder / 'output.txt').read_text()[-3000:]}")
        if not hits:  # it fails by itself, which is of the last kill's making
            done[-1].failed_starts += 1
            if done[-1].failed_starts == MOST_FAILURES:
                raise TimeoutError(f"{MOST_FAILURES} starts have failed one after another")


def _note(done: list[Kill], run: Run) -> None:
    """Add the time without a change to the kill before it."""
    if done:
        done[-1].stall = max(done[-1].stall, round(run.stall, 1))
    run.stall = 0.0


def judged(project: Project, reference: Reference) -> tuple[list[str], list[str]]:
    """After a round: how its files differ, and what is left."""
    left = leftovers(project.folder, reference.beside)
    if "Nothing to be done" not in (plan := project.run("-n")).stdout:
        left.append(f"work: {plan.stdout[-500:]}")
    return differences(reference.results, snapshot(project.folder / RESULTS)), left


def table(kills: list[Kill]) -> str:
    """What came of the kills, by target and signal, in Markdown."""
    lines = ["| target | signal | kills | resumed | differing files | left behind | longest stall |",
             "|---|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    for target, name in itertools.product(TARGETS, SIGNALS):
        of_kind = [kill for kill in kills if (kill.target, kill.signal) == (target, name)]
        if of_kind:
            resumed = sum(not kill.failed_starts for kill in of_kind)
            worst = [max(getattr(kill, what) for kill in of_kind) for what in ("differing", "left", "stall")]
            lines.append(f"| {target} | {name} | {len(of_kind)} | {resumed} | {worst[0]} | {worst[1]} "
                         f"| {worst[2]:.0f} s |")  # fmt: skip
    rounds = len({kill.round for kill in kills})
    resumed = sum(not kill.failed_starts for kill in kills)
    lines.append(f"| **all** | | {len(kills)} | {resumed} | {max(kill.differing for kill in kills)} "
                 f"| {max(kill.left for kill in kills)} | {max(kill.stall for kill in kills):.0f} s |")  # fmt: skip
    return f"{len(kills)} kills in {rounds} rounds, seed {kills[0].seed}.\n\n" + "\n".join(lines)


def write_page(page: Path, text: str) -> None:
    """Put the text between the two marks of the page."""
    begin, end = PAGE_MARKS
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    if not after:
        raise SystemExit(f"{page}: no lines {begin} and {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def read_kills(path: Path, seed: int) -> list[Kill]:
    """The kills of an earlier call. Raises SystemExit where they are of another seed."""
    if not path.exists():
        return []
    with path.open(newline="") as lines:
        kills = [Kill(**{field.name: field.type(row[field.name]) for field in fields(Kill)})
                 for row in csv.DictReader(lines)]  # fmt: skip
    if any(kill.seed != seed for kill in kills):
        raise SystemExit(f"{path} holds kills of another seed: move it away, or give its seed")
    return kills


def write_kills(path: Path, kills: list[Kill]) -> None:
    with path.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, [field.name for field in fields(Kill)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, kills))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, metavar="N", help="of all calls together (default: 20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("kills.csv"), help="a line for each kill")
    parser.add_argument("--page", type=Path, help="write the table also into this page, between two marks")
    parser.add_argument("--keep", action="store_true", help="keep the folders of rounds that are not sound")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that its own end is orderly
    kills = read_kills(args.out, args.seed)
    if len(kills) < args.kills:
        place = Path(tempfile.mkdtemp(prefix="kills-"))
        try:
            kill_until(args, kills, place)
        finally:
            end(place)
            if not args.keep:
                shutil.rmtree(place, ignore_errors=True)
    if not kills:
        parser.error(f"no kills in {args.out}")
    print(table(kills))
    if args.page:
        write_page(args.page, table(kills))
    return 1 if any(kill.failed_starts or kill.differing or kill.left for kill in kills) else 0


def kill_until(args: argparse.Namespace, kills: list[Kill], place: Path) -> None:
    """Run rounds until there are as many kills as wanted; adds them to ``kills``."""
    known = {kill.number for kill in kills}
    wanted = [kill for kill in itertools.islice(planned(args.seed), args.kills) if kill.number not in known]
    print("The undisturbed run, to compare with", flush=True)
    reference = undisturbed(place / "undisturbed")
    print(
        f"{reference.seconds:.0f} s, {len(reference.results)} files, {reference.stall:.0f} s without a change",
        flush=True,
    )
    with tqdm(total=args.kills, initial=len(kills), desc="kills", unit="kill") as bar:
        while wanted:
            number = max((kill.round for kill in kills), default=-1) + 1
            done: list[Kill] = []
            project = new_project(place / str(number))
            try:
                one_round(wanted[:MOST_KILLS], done, project, reference.seconds, bar)
                changed, left = judged(project, reference)
            except TimeoutError as error:
                changed, left = [], [f"{error}; {(project.folder / 'output.txt').read_text()[-3000:]}"]
                end(project.folder)
            for kill in done:
                kill.round, kill.differing, kill.left = number, len(changed), len(left)
                wanted.remove(kill)
            kills += done
            write_kills(args.out, kills)
            if changed or left:
                bar.write("\n  ".join([f"round {number}, {len(done)} kills:", *changed, *left]))
            if not (args.keep and (changed or left)):
                shutil.rmtree(project.folder)


def end(folder: Path) -> None:
    """Kill all processes of the projects in a folder."""
    for process in at_work(folder):
        with contextlib.suppress(psutil.Error):
            process.kill()


if __name__ == "__main__":
    sys.exit(main())
