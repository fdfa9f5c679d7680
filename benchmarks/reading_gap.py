"""What a policy loses by reading: a doctor who knows the hospital names the likeliest disease on the policy's evidence.

Every greedy workup is replayed. `doctor` is the share of cases in which the exact posterior's first disease is the true
one, `policy` that of the policy's own diagnosis: their difference is lost by reading, the rest by choice.

Needs the evaluations of an overlay: snakemake --cores all --configfile config/beyond_paper_fresh.yaml -- frontier
Usage: python benchmarks/reading_gap.py record_critic-seed1 cdpr-seed0 warm_start [--overlay ...] [--cases 600]
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from statistics import fmean

from cdpr.agents.reference import ValueOfInformation
from cdpr.cases import iterate_records
from cdpr.credit.belief import true_names
from cdpr.environment import DiagnosticEnvironment
from cdpr.evaluation.row import read_rows, replay
from cdpr.settings import load_settings

HOSPITALS = ("mimic_iv", "clinicalbench", "private")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="names of runs in the folder of evaluations")
    parser.add_argument("--overlay", default="config/beyond_paper_fresh.yaml", help="overlay of the evaluations")
    parser.add_argument("--cases", type=int, default=600, help="test cases of each hospital")
    options = parser.parse_args()
    settings = load_settings("config.yaml", options.overlay)
    environment, folder = DiagnosticEnvironment(settings.environment), Path(settings.paths.results)
    print("run,hospital,cases,doctor,policy,requests,without_result")
    for hospital in HOSPITALS:
        reference = ValueOfInformation(settings, hospital)
        cases = {case.note_id: case for case in iterate_records(folder / "cases" / f"{hospital}.jsonl", "test")}
        for run in options.runs:
            rows = read_rows(folder / "evaluations" / run / f"{hospital}.jsonl")
            rows = [row for row in rows if row.decoding == "greedy"][: options.cases]
            doctor, policy, requests, missing = [], [], [], []
            for row in rows:
                case = cases[row.note_id]
                workup = asyncio.run(replay(environment, case, row.replies or (), row.forced))
                likeliest = reference.doctor.diseases[int(reference.posterior(workup.states[-1]).argmax())]
                doctor.append(likeliest.casefold() in {name.casefold() for name in true_names(case)})
                policy.append(workup.correct)
                requests.append(len(workup.steps) - 1)
                missing.append(sum(step.observation.kind != "result" for step in workup.steps[:-1]))
            shares = f"{100 * fmean(doctor):.1f},{100 * fmean(policy):.1f}"
            print(f"{run},{hospital},{len(rows)},{shares},{fmean(requests):.2f},{fmean(missing):.2f}")


if __name__ == "__main__":
    main()
