"""Every statement of ``workflow/paper/audit.yaml`` recomputed: under its id a function of the paper's facts ``p`` and
of the statement ``s``, in the order of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from operator import add, mul, sub, truediv

from ..results.methods import AGENTS, DATASETS
from ..results.paper import METRICS
from .recompute import (
    Facts,
    Recomputed,
    Stated,
    attainable,
    averages,
    count,
    detectable,
    equals,
    first,
    holds,
    like_others,
    listed,
    marked,
    pooled_together,
    quoted,
    repeats,
)

_PLACES = (*DATASETS, "average")
_QWEN, _TRAINED = ("Qwen3-4B", "Qwen3-8B", "Qwen3-32B"), ("GRPO-4B", "DiagAgent-8B", "DiagAgent-14B", "CDPR-4B")
_DELIBERATING = ("MedAgent", "MDAgent", "ToR")
_REMOVED = ("w/o R_proc", "w/o lambda_test", "w/o lambda_cost", "w/o lambda_na")
_TABLES_2_AND_3 = [f"ablation:{row}:acc" for row in ("CDPR", *_REMOVED)]
_TABLES_2_AND_3 += ["dynamic:Static diagnosis:acc", "dynamic:CDPR:acc"]
_NOT_OF_ONE_RUN = [*(f"ablation:{row}:acc" for row in _REMOVED[1:]), "dynamic:Static diagnosis:acc"]

Check = Callable[[Facts, Stated], Recomputed | Iterable[Recomputed]]


def _compared(one: str, sign: str, other: str | Fraction) -> Check:
    """Two figures by address, ``{}`` in it being what the statement is repeated for, or a figure and a number."""
    return lambda p, s: holds(p[one.format(s.at)], sign, p[other.format(s.at)] if isinstance(other, str) else other)


def _related(follows: Callable[..., Fraction], *figures: str) -> Check:
    """A number that follows from figures by address."""
    return lambda p, s: equals(s, follows, *(p[figure] for figure in figures))


def _leads(column: str, row: str, order: str, rows: Iterable[str] = (), table: str = "main") -> Check:
    """A row that comes first in a column, among the rows named."""
    return lambda p, s: first(p.column(column.format(s.at), rows, table), row, order)


CHECKS: dict[str, Check] = {
    # Table 1
    "averages": lambda p, s: averages(p),
    "marks": lambda p, s: marked(p, "main", [f"{at}.{m}" for at in _PLACES for m in METRICS], "best", "second"),
    "attainable": lambda p, s: (
        found for d in DATASETS for found in attainable(p, [f"main:{row}:{d}.acc" for row in p.rows()], d)
    ),
    "attainable.mimic_iv": lambda p, s: attainable(p, _TABLES_2_AND_3, "mimic_iv"),
    "attainable.pooled": lambda p, s: pooled_together(p, _NOT_OF_ONE_RUN, "mimic_iv"),
    "attainable.pooled_private": lambda p, s: pooled_together(
        p, ["main:CDPR-4B:private.acc", "main:Baichuan-M1-32B:private.acc"], "private"
    ),
    "turn_cap": lambda p, s: count(s, {row: aen > p["text:turns"] for row, aen in p.column(f"{s.at}.aen").items()}),
    "turn_cap.ablation": lambda p, s: count(
        s, {row: aen > p["text:turns"] for row, aen in p.column("aen", table="ablation").items()}
    ),
    "cost_pattern.ratio": lambda p, s: holds(
        max(ratios := [p[f"main:DiagAgent-8B:{d}.aec"] / p[f"main:DiagAgent-14B:{d}.aec"] for d in DATASETS])
        - min(ratios), ">", Fraction(1, 100),
    ),
    "cost_pattern.sets": lambda p, s: like_others(
        {row: p[f"main:{row}:mimic_iv.aec"] / p[f"main:{row}:clinicalbench.aec"] for row in p.rows()},
        ["DiagAgent-8B", "DiagAgent-14B"],
    ),
    # Abstract, introduction, conclusion
    "sets": _related(add, "text:sets.in_domain", "text:sets.out_of_domain"),
    "accuracy.grpo": _compared("main:CDPR-4B:{}.acc", ">", "main:GRPO-4B:{}.acc"),
    "accuracy.backbone": _compared("main:CDPR-4B:{}.acc", ">", "main:Qwen3-4B:{}.acc"),
    "accuracy.everywhere": _leads("{}.acc", "CDPR-4B", "greatest"),
    "examinations.grpo": _compared("main:CDPR-4B:{}.aen", "<", "main:GRPO-4B:{}.aen"),
    "examinations.backbone": _compared("main:CDPR-4B:{}.aen", "<", "main:Qwen3-4B:{}.aen"),
    "examinations.everywhere": _leads("{}.aen", "CDPR-4B", "least"),
    "cost.grpo": _compared("main:CDPR-4B:{}.aec", "<", "main:GRPO-4B:{}.aec"),
    "cost.backbone": _compared("main:CDPR-4B:{}.aec", "<", "main:Qwen3-4B:{}.aec"),
    "cost.everywhere": _leads("{}.aec", "CDPR-4B", "least"),
    # Main results
    "results1": quoted,
    "average.best_accuracy": _leads("average.acc", "CDPR-4B", "greatest"),
    "average.least_cost": _leads("average.aec", "CDPR-4B", "least"),
    "average.surpasses": _compared("main:CDPR-4B:average.acc", ">", "main:{}:average.acc"),
    "average.cheaper": lambda p, s: holds(p["main:CDPR-4B:average.aec"], "<", p[f"main:{s.at}:average.aec"] / 2),
    "average.larger": lambda p, s: holds(Fraction(s.at) / 4, "≥", 3),
    "average.weighted": lambda p, s: holds(p.pooled("CDPR-4B"), ">", p.pooled("GPT-5.4")),
    "private.hardest": lambda p, s: count(s, {
        row: private < min(p[f"main:{row}:mimic_iv.acc"], p[f"main:{row}:clinicalbench.acc"])
        for row, private in p.column("private.acc").items()
    }),
    "private.better": lambda p, s: count(s, {
        row: accuracy > p["main:CDPR-4B:private.acc"] for row, accuracy in p.column("private.acc").items()
    }),
    "private.points": _related(sub, "main:DiagAgent-14B:private.acc", "main:CDPR-4B:private.acc"),
    "private.sixteenth": _related(truediv, "main:DiagAgent-14B:private.aec", "main:CDPR-4B:private.aec"),
    "private.more_tests": _compared("main:DiagAgent-14B:private.aen", ">", "main:CDPR-4B:private.aen"),
    "private.coverage": lambda p, s: count(s, {
        row: accuracy > p["main:CDPR-4B:private.acc"] and p[f"main:{row}:private.aen"] <= p["main:CDPR-4B:private.aen"]
        for row, accuracy in p.column("private.acc").items()
    }),
    "results2": quoted,
    "agents.least": lambda p, s: equals(s, min, *p.column("average.aec", _DELIBERATING).values()),
    "agents.most": lambda p, s: equals(s, max, *p.column("average.aec", _DELIBERATING).values()),
    "agents.number": lambda p, s: listed(s, [row for row, group in p.paper.groups["main"].items() if group == AGENTS]),
    "groups.number": lambda p, s: listed(s, s.items),
    "agents.band": lambda p, s: count(s, {
        row: min(band := p.column("average.acc", _QWEN).values()) <= accuracy <= max(band)
        for row, accuracy in p.column("average.acc", _DELIBERATING).items()
    }),
    "agents.rl_outperforms": lambda p, s: count(s, {
        row: accuracy > max(p.column("average.acc", _DELIBERATING).values())
        for row, accuracy in p.column("average.acc", _TRAINED).items()
    }),
    "agents.amplify": lambda p, s: count(s, {
        row: cost > max(p.column("average.aec", _QWEN).values())
        for row, cost in p.column("average.aec", _DELIBERATING).items()
    }),
    "agents.medagent_cost": _compared("main:MedAgent:average.aec", ">", "main:Qwen3-8B:average.aec"),
    "agents.medagent_tests": _compared("main:MedAgent:average.aen", ">", "main:Qwen3-8B:average.aen"),
    "results3": quoted,
    "medical.huatuo": lambda p, s: holds(p["main:Qwen3-8B:average.acc"] - p["main:Huatuo-o1-8B:average.acc"], "≥", 10),
    "medical.gemma": _related(sub, "main:Med-Gemma-27B:average.acc", "main:Qwen3-32B:average.acc"),
    # Ablations
    "ablation.marks": lambda p, s: marked(p, "ablation", METRICS, "best"),
    "ablation.is_cdpr": _compared("ablation:CDPR:{}", "=", "main:CDPR-4B:mimic_iv.{}"),
    "ablation.is_grpo": _compared("ablation:w/o R_proc:{}", "=", "main:GRPO-4B:mimic_iv.{}"),
    "ablation.text": quoted,
    "ablation.largest_drop": _leads("acc", "w/o R_proc", "least", _REMOVED, "ablation"),
    "ablation.rise": lambda p, s: holds(
        p[f"ablation:w/o R_proc:{s.at}"], "≥", Fraction(11, 10) * p[f"ablation:CDPR:{s.at}"]
    ),
    "ablation.rise_rank": _leads("aec", "w/o R_proc", "greatest", _REMOVED, "ablation"),
    "ablation.close": _compared("ablation:{}:acc", ">", "ablation:w/o R_proc:acc"),
    "ablation.aen_doubles": _related(truediv, "ablation:w/o lambda_test:aen", "ablation:CDPR:aen"),
    "ablation.aec_doubles": _related(truediv, "ablation:w/o lambda_cost:aec", "ablation:CDPR:aec"),
    "ablation.aen_unchanged": _related(sub, "ablation:w/o lambda_cost:aen", "ablation:CDPR:aen"),
    "ablation.test_role": _leads("aen", "w/o lambda_test", "greatest", _REMOVED, "ablation"),
    "ablation.cost_role": _leads("aec", "w/o lambda_cost", "greatest", _REMOVED, "ablation"),
    "ablation.cost_role_alone": lambda p, s: holds(
        p["ablation:w/o lambda_cost:aec"] - p["ablation:w/o lambda_test:aec"], "≥",
        (p["ablation:w/o lambda_cost:aec"] - p["ablation:CDPR:aec"]) / 10,
    ),
    "ablation.retries": _compared("ablation:w/o lambda_na:aen", ">", "ablation:CDPR:aen"),
    # Efficiency, sensitivity
    "efficiency.schemes": lambda p, s: listed(s, s.items),
    "efficiency.grpo": _related(Fraction, "main:GRPO-4B:mimic_iv.acc"),
    "efficiency.lowest": _compared("text:plateau.grpo", "<", "text:plateau.cdpr"),
    "efficiency.validation": _compared("text:plateau.cdpr", "≠", "main:CDPR-4B:mimic_iv.acc"),
    "sensitivity.number": lambda p, s: listed(s, s.items),
    "sensitivity.samples": _compared("text:n_s", "≥", "text:M"),
    # Expert study
    "expert.states": _related(
        lambda states, near, far: states * (near + far),
        "text:states_per_set", "text:sets.in_domain", "text:sets.out_of_domain",
    ),
    "expert.baselines": _related(lambda baselines: baselines + 1, "text:rated_baselines"),
    "expert.gain": _compared("expert:CDPR:diagnostic_gain", ">", "expert:next best:diagnostic_gain"),
    "expert.cost": _compared("expert:CDPR:cost_effectiveness", ">", "expert:next best:cost_effectiveness"),
    "expert.largest": lambda p, s: holds(
        p["expert:CDPR:diagnostic_gain"] - p["expert:next best:diagnostic_gain"], ">",
        p["expert:CDPR:cost_effectiveness"] - p["expert:next best:cost_effectiveness"],
    ),
    "expert.relevance": _compared("expert:Med-Gemma-27B:disease_relevance", ">", "expert:GPT-5.4:disease_relevance"),
    "expert.scale": _compared("expert:CDPR:diagnostic_gain", "≤", "text:likert_top"),
    "expert.agent": _leads("average.acc", "MDAgent", "greatest", _DELIBERATING),
    "expert.agreement": _compared("text:agreement", "≥", Fraction("0.8")),
    # Dynamic and static
    "static.marks": lambda p, s: marked(p, "dynamic", ("acc", "aec"), "best"),
    "static.is_cdpr": _compared("dynamic:CDPR:{}", "=", "main:CDPR-4B:mimic_iv.{}"),
    "static.text": quoted,
    "static.reduction": lambda p, s: equals(
        s, lambda cdpr, static: 100 * (1 - cdpr / static), p["dynamic:CDPR:aec"], p["dynamic:Static diagnosis:aec"]
    ),
    "static.tenth": _related(truediv, "dynamic:CDPR:aec", "dynamic:Static diagnosis:aec"),
    "static.surpasses": _compared("dynamic:CDPR:acc", ">", "dynamic:Static diagnosis:acc"),
    "static.backbone": _compared("main:Qwen3-4B:mimic_iv.acc", "≥", "dynamic:Static diagnosis:acc"),
    # What the differences can bear
    "power.ablation": lambda p, s: detectable(p, p["ablation:CDPR:acc"] - p[f"ablation:{s.at}:acc"], "mimic_iv"),
    "power.static": lambda p, s: detectable(p, p["dynamic:CDPR:acc"] - p["dynamic:Static diagnosis:acc"], "mimic_iv"),
    "power.grpo": lambda p, s: detectable(p, p[f"main:CDPR-4B:{s.at}.acc"] - p[f"main:GRPO-4B:{s.at}.acc"], s.at),
    "power.gpt": lambda p, s: detectable(
        p, p["main:CDPR-4B:clinicalbench.acc"] - p["main:GPT-5.4:clinicalbench.acc"], "clinicalbench"
    ),
    # The method's own numbers
    "utility.zero": lambda p, s: holds(p.utility(s.at), ">", 0),
    "utility.best": lambda p, s: first({row: p.utility(row) for row in p.rows()}, "CDPR-4B", "greatest"),
    "cache.group": lambda p, s: holds(p["text:n"] - 1, "≥", p["text:K"]),
    "cache.epochs": lambda p, s: holds(p["text:cache"], "≥", p["text:cases.train"] * p["text:n"]),
    "batch": _related(mul, "text:batch", "text:n"),
    "micro_batch": _related(mul, "text:micro_batch", "text:gpus"),
    "tensor_parallel": _compared("text:tensor_parallel", "≤", "text:gpus"),
    "probes": _compared("text:eta", "≤", Fraction("2.079")),
    # Prices of the sample record
    "prices": lambda p, s: holds(
        Fraction(9, 10) * p[f"schedule:{s.at}"], "≤", p[f"price:{s.at}"], "≤", Fraction(11, 10) * p[f"schedule:{s.at}"]
    ),
    "prices.ct": _related(Fraction, "schedule:CT Abdomen and Pelvis"),
    "prices.cbc_group": _compared("text:price.mcv", "=", "price:Complete Blood Count"),
    "prices.bmp_group": _compared("price:Anion Gap", "=", "price:Kidney Function Tests"),
    "repeats": lambda p, s: repeats(p),
}  # fmt: skip
