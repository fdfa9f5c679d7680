"""How each statement of ``workflow/paper/audit.yaml`` is recomputed: a function of the paper's facts ``p`` and of the
statement ``s``, under the field that declares it or, in the order of the paper, under the statement's id."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from operator import add, mul, sub, truediv

from ..results.methods import AGENTS, DATASETS
from ..results.paper import METRICS, PaperFacts
from .recompute import (
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
    pooled,
    pooled_together,
    quoted,
    repeats,
    utility,
)

_PLACES = (*DATASETS, "average")
_QWEN, _TRAINED = ("Qwen3-4B", "Qwen3-8B", "Qwen3-32B"), ("GRPO-4B", "DiagAgent-8B", "DiagAgent-14B", "CDPR-4B")
_DELIBERATING = ("MedAgent", "MDAgent", "ToR")
_REMOVED = ("w/o R_proc", "w/o lambda_test", "w/o lambda_cost", "w/o lambda_na")
_TABLES_2_AND_3 = [f"ablation:{row}:acc" for row in ("CDPR", *_REMOVED)]
_TABLES_2_AND_3 += ["dynamic:Static diagnosis:acc", "dynamic:CDPR:acc"]
_NOT_OF_ONE_RUN = [*(f"ablation:{row}:acc" for row in _REMOVED[1:]), "dynamic:Static diagnosis:acc"]

Check = Callable[[PaperFacts, Stated], Recomputed | Iterable[Recomputed]]


_RELATIONS: dict[str, Callable[..., Fraction]] = {
    "figure": Fraction, "sum": add, "difference": sub, "product": mul, "ratio": truediv, "least": min, "greatest": max,
    "reduction": lambda part, whole: 100 * (1 - part / whole),
}  # fmt: skip


def _holds(p: PaperFacts, s: Stated) -> Recomputed:
    one, sign, other = s.holds
    return holds(p[one], sign, p[other] if ":" in other else Fraction(other))


def _leads(p: PaperFacts, s: Stated) -> Recomputed:
    order, row, table, column, *rows = s.leads
    return first(p.column(column, rows, table), row, order)


def _detects(p: PaperFacts, s: Stated) -> Recomputed:
    dataset, one, other = s.detects
    return detectable(p, p[one] - p[other], dataset)


# By the field of a statement that tells how it is recomputed.
DECLARED: dict[str, Check] = {
    "quotes": quoted,
    "items": lambda p, s: listed(s, s.items),
    "holds": _holds,
    "follows": lambda p, s: equals(s, _RELATIONS[s.follows[0]], *(p[figure] for figure in s.follows[1:])),
    "leads": _leads,
    "detects": _detects,
}

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
    # Main results
    "average.cheaper": lambda p, s: holds(p["main:CDPR-4B:average.aec"], "<", p[f"main:{s.at}:average.aec"] / 2),
    "average.larger": lambda p, s: holds(Fraction(s.at) / 4, "≥", 3),
    "average.weighted": lambda p, s: holds(pooled(p, "CDPR-4B"), ">", pooled(p, "GPT-5.4")),
    "private.hardest": lambda p, s: count(s, {
        row: private < min(p[f"main:{row}:mimic_iv.acc"], p[f"main:{row}:clinicalbench.acc"])
        for row, private in p.column("private.acc").items()
    }),
    "private.better": lambda p, s: count(s, {
        row: accuracy > p["main:CDPR-4B:private.acc"] for row, accuracy in p.column("private.acc").items()
    }),
    "private.coverage": lambda p, s: count(s, {
        row: accuracy > p["main:CDPR-4B:private.acc"] and p[f"main:{row}:private.aen"] <= p["main:CDPR-4B:private.aen"]
        for row, accuracy in p.column("private.acc").items()
    }),
    "agents.number": lambda p, s: listed(s, [row for row, group in p.groups["main"].items() if group == AGENTS]),
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
    "medical.huatuo": lambda p, s: holds(p["main:Qwen3-8B:average.acc"] - p["main:Huatuo-o1-8B:average.acc"], "≥", 10),
    # Ablations
    "ablation.marks": lambda p, s: marked(p, "ablation", METRICS, "best"),
    "ablation.rise": lambda p, s: holds(
        p[f"ablation:w/o R_proc:{s.at}"], "≥", Fraction(11, 10) * p[f"ablation:CDPR:{s.at}"]
    ),
    "ablation.cost_role_alone": lambda p, s: holds(
        p["ablation:w/o lambda_cost:aec"] - p["ablation:w/o lambda_test:aec"], "≥",
        (p["ablation:w/o lambda_cost:aec"] - p["ablation:CDPR:aec"]) / 10,
    ),
    # Expert study
    "expert.states": lambda p, s: equals(
        s, lambda states, near, far: states * (near + far),
        p["text:states_per_set"], p["text:sets.in_domain"], p["text:sets.out_of_domain"],
    ),
    "expert.baselines": lambda p, s: equals(s, lambda baselines: baselines + 1, p["text:rated_baselines"]),
    "expert.largest": lambda p, s: holds(
        p["expert:CDPR:diagnostic_gain"] - p["expert:next best:diagnostic_gain"], ">",
        p["expert:CDPR:cost_effectiveness"] - p["expert:next best:cost_effectiveness"],
    ),
    # Dynamic and static
    "static.marks": lambda p, s: marked(p, "dynamic", ("acc", "aec"), "best"),
    # The method's own numbers
    "utility.zero": lambda p, s: holds(utility(p, s.at), ">", 0),
    "utility.best": lambda p, s: first({row: utility(p, row) for row in p.rows()}, "CDPR-4B", "greatest"),
    "cache.group": lambda p, s: holds(p["text:n"] - 1, "≥", p["text:K"]),
    "cache.epochs": lambda p, s: holds(p["text:cache"], "≥", p["text:cases.train"] * p["text:n"]),
    # Prices of the sample record
    "prices": lambda p, s: holds(
        Fraction(9, 10) * p[f"schedule:{s.at}"], "≤", p[f"price:{s.at}"], "≤", Fraction(11, 10) * p[f"schedule:{s.at}"]
    ),
    "repeats": lambda p, s: repeats(p),
}  # fmt: skip
