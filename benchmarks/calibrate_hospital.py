"""Reference numbers of the model itself, on sampled patients and without files.

``python benchmarks/calibrate_hospital.py --cases 1000`` prints, for each reference policy, accuracy, issued
examinations (AEN), cost (AEC), unavailable requests and utility under the paper's lambdas. Prices are the
rough ones of the model's files; the pipeline's own come from the cost catalogue.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cdpr.hospital.model import load_hospital
from cdpr.hospital.posterior import Diagnostician
from cdpr.hospital.sample import Patient, sample_patient
from cdpr.settings.datasets import IN_DOMAIN


@dataclass
class Workup:
    """One case under one policy."""

    correct: float
    issued: int = 0
    available: int = 0
    unavailable: int = 0
    physical: int = 0
    usd: float = 0.0


def work_up(doctor: Diagnostician, patient: Patient, choose: Callable, turns: int = 8) -> Workup:
    """Play a policy ``choose(p, asked) -> examination index or None`` on a patient."""
    symptoms = {f.name: s for f, s in zip(doctor.hospital.presentation, patient.symptoms, strict=True) if s >= 0}
    p = doctor.posterior(patient.age, patient.female, symptoms)
    asked: set[int] = set()
    done = Workup(0.0)
    while len(asked) < turns - 1:
        pick = choose(p, asked)
        if pick is None:
            break
        asked.add(pick)
        exam = doctor.hospital.examinations[doctor.exams[pick]]
        physical = exam.kind == "physical"
        done.physical += physical
        done.issued += not physical
        if exam.name not in patient.available:
            done.unavailable += 1
            continue
        done.available += not physical
        done.usd += 0.0 if physical else exam.usd
        found = dict(zip((f.name for f in exam.findings), patient.results[exam.name], strict=True))
        p = doctor.condition(p, exam.findings, found, p)
    done.correct = float(int(p.argmax()) == patient.disease)
    return done


def policies(doctor: Diagnostician, lambdas: dict, rng: np.random.Generator) -> dict[str, tuple[Callable, int]]:
    """The reference policies by name, each with its cap on turns."""
    n = len(doctor.exams)
    exams = [doctor.hospital.examinations[e] for e in doctor.exams]
    usd = np.array([e.usd for e in exams])
    order = np.argsort(usd, kind="stable")
    free = np.array([e.kind == "physical" for e in exams])
    charge = np.where(free, 0.0, lambdas["test"] + lambdas["cost"] * usd / lambdas["unit"])
    tests = [i for i, e in enumerate(exams) if e.kind != "physical"]

    def value(p, asked):
        done = np.isin(np.arange(n), list(asked))
        net = doctor.two_step_gain(p, charge, lambdas["na"], done)
        return int(net.argmax()) if net.max() > 1e-3 else None

    def myopic(p, asked):
        net = doctor.net_gain(p, charge, lambdas["na"])
        net[list(asked)] = -1
        return int(net.argmax()) if net.max() > 1e-3 else None

    def accuracy(p, asked):
        net = doctor.site.availability * (doctor.expected_best(p) - p.max())
        net[list(asked)] = -1
        return int(net.argmax()) if net.max() > 1e-3 else None

    def every(p, asked):
        return next((i for i in range(n) if i not in asked), None)

    def cheap(p, asked):
        return None if p.max() >= 0.8 else next((int(i) for i in order if i not in asked and usd[i] > 0), None)

    def chance(p, asked):
        left = [i for i in tests if i not in asked]
        return None if len(asked) >= 3 else int(rng.choice(left))

    def physical(p, asked):
        return next((i for i in range(n) if i not in asked and exams[i].kind == "physical"), None)

    return {
        "zero_test": (lambda p, asked: None, 8),
        "all_physical": (physical, 99),
        "all_tests": (every, 999),
        "random": (chance, 8),
        "cheapest_first": (cheap, 8),
        "value_for_accuracy": (accuracy, 8),
        "value_one_step": (myopic, 8),
        "value_of_information": (value, 8),
    }


def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--dataset", default=IN_DOMAIN)
    parser.add_argument("--cost-unit-usd", type=float, default=7.0)
    args = parser.parse_args(argv)
    hospital = load_hospital()
    doctor = Diagnostician(hospital, args.dataset)
    lambdas = {"test": 0.05, "cost": 0.02, "na": 0.10, "unit": args.cost_unit_usd}
    patients = [sample_patient(hospital, doctor.site, 99, i) for i in range(args.cases)]
    print(f"{'policy':<22}{'acc':>7}{'AEN':>7}{'AEC':>9}{'N_na':>7}{'phys':>7}{'U':>8}")
    for name, (choose, turns) in policies(doctor, lambdas, np.random.default_rng(0)).items():
        done = [work_up(doctor, patient, choose, turns) for patient in patients]
        mean = {f: np.mean([getattr(w, f) for w in done]) for f in Workup.__dataclass_fields__}
        utility = mean["correct"] - lambdas["test"] * mean["available"] - lambdas["na"] * mean["unavailable"]
        utility -= lambdas["cost"] * mean["usd"] / lambdas["unit"]
        print(
            f"{name:<22}{mean['correct']:7.3f}{mean['issued']:7.2f}{mean['usd']:9.2f}{mean['unavailable']:7.2f}"
            f"{mean['physical']:7.2f}{utility:8.3f}"
        )


if __name__ == "__main__":
    main()
