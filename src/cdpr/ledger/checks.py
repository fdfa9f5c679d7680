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

_TABLE_1: dict[str, Check] = {
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
}  # fmt: skip

_ABSTRACT: dict[str, Check] = {
    "sets": lambda p, s: equals(s, add, p["text:sets.in_domain"], p["text:sets.out_of_domain"]),
    "accuracy.grpo": lambda p, s: holds(p[f"main:CDPR-4B:{s.at}.acc"], ">", p[f"main:GRPO-4B:{s.at}.acc"]),
    "accuracy.backbone": lambda p, s: holds(p[f"main:CDPR-4B:{s.at}.acc"], ">", p[f"main:Qwen3-4B:{s.at}.acc"]),
    "accuracy.everywhere": lambda p, s: first(p.column(f"{s.at}.acc"), "CDPR-4B", "greatest"),
    "examinations.grpo": lambda p, s: holds(p[f"main:CDPR-4B:{s.at}.aen"], "<", p[f"main:GRPO-4B:{s.at}.aen"]),
    "examinations.backbone": lambda p, s: holds(p[f"main:CDPR-4B:{s.at}.aen"], "<", p[f"main:Qwen3-4B:{s.at}.aen"]),
    "examinations.everywhere": lambda p, s: first(p.column(f"{s.at}.aen"), "CDPR-4B", "least"),
    "cost.grpo": lambda p, s: holds(p[f"main:CDPR-4B:{s.at}.aec"], "<", p[f"main:GRPO-4B:{s.at}.aec"]),
    "cost.backbone": lambda p, s: holds(p[f"main:CDPR-4B:{s.at}.aec"], "<", p[f"main:Qwen3-4B:{s.at}.aec"]),
    "cost.everywhere": lambda p, s: first(p.column(f"{s.at}.aec"), "CDPR-4B", "least"),
}

_MAIN_RESULTS: dict[str, Check] = {
    "results1": quoted,
    "average.best_accuracy": lambda p, s: first(p.column("average.acc"), "CDPR-4B", "greatest"),
    "average.least_cost": lambda p, s: first(p.column("average.aec"), "CDPR-4B", "least"),
    "average.surpasses": lambda p, s: holds(p["main:CDPR-4B:average.acc"], ">", p[f"main:{s.at}:average.acc"]),
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
    "private.points": lambda p, s: equals(s, sub, p["main:DiagAgent-14B:private.acc"], p["main:CDPR-4B:private.acc"]),
    "private.sixteenth": lambda p, s: equals(
        s, truediv, p["main:DiagAgent-14B:private.aec"], p["main:CDPR-4B:private.aec"]
    ),
    "private.more_tests": lambda p, s: holds(p["main:DiagAgent-14B:private.aen"], ">", p["main:CDPR-4B:private.aen"]),
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
    "agents.medagent_cost": lambda p, s: holds(p["main:MedAgent:average.aec"], ">", p["main:Qwen3-8B:average.aec"]),
    "agents.medagent_tests": lambda p, s: holds(p["main:MedAgent:average.aen"], ">", p["main:Qwen3-8B:average.aen"]),
    "results3": quoted,
    "medical.huatuo": lambda p, s: holds(p["main:Qwen3-8B:average.acc"] - p["main:Huatuo-o1-8B:average.acc"], "≥", 10),
    "medical.gemma": lambda p, s: equals(s, sub, p["main:Med-Gemma-27B:average.acc"], p["main:Qwen3-32B:average.acc"]),
}  # fmt: skip

_ABLATIONS: dict[str, Check] = {
    "ablation.marks": lambda p, s: marked(p, "ablation", METRICS, "best"),
    "ablation.is_cdpr": lambda p, s: holds(p[f"ablation:CDPR:{s.at}"], "=", p[f"main:CDPR-4B:mimic_iv.{s.at}"]),
    "ablation.is_grpo": lambda p, s: holds(p[f"ablation:w/o R_proc:{s.at}"], "=", p[f"main:GRPO-4B:mimic_iv.{s.at}"]),
    "ablation.text": quoted,
    "ablation.largest_drop": lambda p, s: first(p.column("acc", _REMOVED, "ablation"), "w/o R_proc", "least"),
    "ablation.rise": lambda p, s: holds(
        p[f"ablation:w/o R_proc:{s.at}"], "≥", Fraction(11, 10) * p[f"ablation:CDPR:{s.at}"]
    ),
    "ablation.rise_rank": lambda p, s: first(p.column("aec", _REMOVED, "ablation"), "w/o R_proc", "greatest"),
    "ablation.close": lambda p, s: holds(p[f"ablation:{s.at}:acc"], ">", p["ablation:w/o R_proc:acc"]),
    "ablation.aen_doubles": lambda p, s: equals(s, truediv, p["ablation:w/o lambda_test:aen"], p["ablation:CDPR:aen"]),
    "ablation.aec_doubles": lambda p, s: equals(s, truediv, p["ablation:w/o lambda_cost:aec"], p["ablation:CDPR:aec"]),
    "ablation.aen_unchanged": lambda p, s: equals(s, sub, p["ablation:w/o lambda_cost:aen"], p["ablation:CDPR:aen"]),
    "ablation.test_role": lambda p, s: first(p.column("aen", _REMOVED, "ablation"), "w/o lambda_test", "greatest"),
    "ablation.cost_role": lambda p, s: first(p.column("aec", _REMOVED, "ablation"), "w/o lambda_cost", "greatest"),
    "ablation.cost_role_alone": lambda p, s: holds(
        p["ablation:w/o lambda_cost:aec"] - p["ablation:w/o lambda_test:aec"], "≥",
        (p["ablation:w/o lambda_cost:aec"] - p["ablation:CDPR:aec"]) / 10,
    ),
    "ablation.retries": lambda p, s: holds(p["ablation:w/o lambda_na:aen"], ">", p["ablation:CDPR:aen"]),
}  # fmt: skip

_EFFICIENCY_AND_SENSITIVITY: dict[str, Check] = {
    "efficiency.schemes": lambda p, s: listed(s, s.items),
    "efficiency.grpo": lambda p, s: equals(s, Fraction, p["main:GRPO-4B:mimic_iv.acc"]),
    "efficiency.lowest": lambda p, s: holds(p["text:plateau.grpo"], "<", p["text:plateau.cdpr"]),
    "efficiency.validation": lambda p, s: holds(p["text:plateau.cdpr"], "≠", p["main:CDPR-4B:mimic_iv.acc"]),
    "sensitivity.number": lambda p, s: listed(s, s.items),
    "sensitivity.samples": lambda p, s: holds(p["text:n_s"], "≥", p["text:M"]),
}

_EXPERTS: dict[str, Check] = {
    "expert.states": lambda p, s: equals(
        s, lambda states, near, far: states * (near + far),
        p["text:states_per_set"], p["text:sets.in_domain"], p["text:sets.out_of_domain"],
    ),
    "expert.baselines": lambda p, s: equals(s, lambda baselines: baselines + 1, p["text:rated_baselines"]),
    "expert.gain": lambda p, s: holds(p["expert:CDPR:diagnostic_gain"], ">", p["expert:next best:diagnostic_gain"]),
    "expert.cost": lambda p, s: holds(
        p["expert:CDPR:cost_effectiveness"], ">", p["expert:next best:cost_effectiveness"]
    ),
    "expert.largest": lambda p, s: holds(
        p["expert:CDPR:diagnostic_gain"] - p["expert:next best:diagnostic_gain"], ">",
        p["expert:CDPR:cost_effectiveness"] - p["expert:next best:cost_effectiveness"],
    ),
    "expert.relevance": lambda p, s: holds(
        p["expert:Med-Gemma-27B:disease_relevance"], ">", p["expert:GPT-5.4:disease_relevance"]
    ),
    "expert.scale": lambda p, s: holds(p["expert:CDPR:diagnostic_gain"], "≤", p["text:likert_top"]),
    "expert.agent": lambda p, s: first(p.column("average.acc", _DELIBERATING), "MDAgent", "greatest"),
    "expert.agreement": lambda p, s: holds(p["text:agreement"], "≥", Fraction("0.8")),
}  # fmt: skip

_STATIC: dict[str, Check] = {
    "static.marks": lambda p, s: marked(p, "dynamic", ("acc", "aec"), "best"),
    "static.is_cdpr": lambda p, s: holds(p[f"dynamic:CDPR:{s.at}"], "=", p[f"main:CDPR-4B:mimic_iv.{s.at}"]),
    "static.text": quoted,
    "static.reduction": lambda p, s: equals(
        s, lambda cdpr, static: 100 * (1 - cdpr / static), p["dynamic:CDPR:aec"], p["dynamic:Static diagnosis:aec"]
    ),
    "static.tenth": lambda p, s: equals(s, truediv, p["dynamic:CDPR:aec"], p["dynamic:Static diagnosis:aec"]),
    "static.surpasses": lambda p, s: holds(p["dynamic:CDPR:acc"], ">", p["dynamic:Static diagnosis:acc"]),
    "static.backbone": lambda p, s: holds(p["main:Qwen3-4B:mimic_iv.acc"], "≥", p["dynamic:Static diagnosis:acc"]),
}  # fmt: skip

_POWER: dict[str, Check] = {
    "power.ablation": lambda p, s: detectable(p, p["ablation:CDPR:acc"] - p[f"ablation:{s.at}:acc"], "mimic_iv"),
    "power.static": lambda p, s: detectable(p, p["dynamic:CDPR:acc"] - p["dynamic:Static diagnosis:acc"], "mimic_iv"),
    "power.grpo": lambda p, s: detectable(p, p[f"main:CDPR-4B:{s.at}.acc"] - p[f"main:GRPO-4B:{s.at}.acc"], s.at),
    "power.gpt": lambda p, s: detectable(
        p, p["main:CDPR-4B:clinicalbench.acc"] - p["main:GPT-5.4:clinicalbench.acc"], "clinicalbench"
    ),
}

_METHOD: dict[str, Check] = {
    "utility.zero": lambda p, s: holds(p.utility(s.at), ">", 0),
    "utility.best": lambda p, s: first({row: p.utility(row) for row in p.rows()}, "CDPR-4B", "greatest"),
    "cache.group": lambda p, s: holds(p["text:n"] - 1, "≥", p["text:K"]),
    "cache.epochs": lambda p, s: holds(p["text:cache"], "≥", p["text:cases.train"] * p["text:n"]),
    "batch": lambda p, s: equals(s, mul, p["text:batch"], p["text:n"]),
    "micro_batch": lambda p, s: equals(s, mul, p["text:micro_batch"], p["text:gpus"]),
    "tensor_parallel": lambda p, s: holds(p["text:tensor_parallel"], "≤", p["text:gpus"]),
    "probes": lambda p, s: holds(p["text:eta"], "≤", Fraction("2.079")),
}

_PRICES: dict[str, Check] = {
    "prices": lambda p, s: holds(
        Fraction(9, 10) * p[f"schedule:{s.at}"], "≤", p[f"price:{s.at}"], "≤", Fraction(11, 10) * p[f"schedule:{s.at}"]
    ),
    "prices.ct": lambda p, s: equals(s, Fraction, p["schedule:CT Abdomen and Pelvis"]),
    "prices.cbc_group": lambda p, s: holds(p["text:price.mcv"], "=", p["price:Complete Blood Count"]),
    "prices.bmp_group": lambda p, s: holds(p["price:Anion Gap"], "=", p["price:Kidney Function Tests"]),
}

CHECKS: dict[str, Check] = {
    **_TABLE_1, **_ABSTRACT, **_MAIN_RESULTS, **_ABLATIONS, **_EFFICIENCY_AND_SENSITIVITY, **_EXPERTS, **_STATIC,
    **_POWER, **_METHOD, **_PRICES, "repeats": lambda p, s: repeats(p),
}  # fmt: skip
