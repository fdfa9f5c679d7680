"""What each system asks of its language model: calls, tokens and dollars a case, and what went wrong with its replies.

Bad replies and forced diagnoses explain rows of the main table that accuracy and cost alone do not.
"""

from dataclasses import asdict
from pathlib import Path

from ..llm.spending import spent
from ..results import frame
from ..results.methods import Method, main_methods, tier_mark
from ..results.results import NotMeasured, Results
from ..results.table import Column, Row, Sheet, Table
from ..settings import Settings, model_of
from ..settings.models import Prices

# Means over cases, and dollars of them.
_FIGURES = (
    Column("calls", "Calls"), Column("prompt_tokens", "Tokens asked", decimals=0),
    Column("completion_tokens", "answered", decimals=0), Column("invalid", "Invalid replies"),
    Column("unmarked", "Unmarked answers"), Column("silent", "Silent calls"), Column("too_long", "too long"),
    Column("refused", "refused"), Column("failed", "failed"), Column("cut", "Cut prompts"),
    Column("cut_results", "Cut results"),
    Column("forced", "Forced %", decimals=1), Column("usd", "USD", decimals=4), Column("usd_in_all", "USD in all"),
)  # fmt: skip
# As the fields of what is spent.
_SPENT = (
    Column("system", "System", align="l"), Column("model", "Model", align="l"), Column("calls", "Calls"),
    Column("prompt_tokens", "Tokens asked"), Column("completion_tokens", "answered"), Column("usd", "USD", decimals=4),
    Column("unknown_calls", "Calls", "Of it unknown"), Column("unknown_usd", "USD", "Of it unknown", decimals=4),
    Column("reserved_usd", "USD under way", decimals=4),
)  # fmt: skip


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Per decoding what each system took. Raises as :class:`Results` does."""
    results = Results(settings, folder, main_methods(settings))
    mark = tier_mark(settings)
    tables = [effort_table(results, decoding, mark) for decoding in results.decodings]
    parts = [(f"{one.capitalize()} decoding", table) for one, table in zip(results.decodings, tables, strict=True)]
    names = ("tier", "decoding", "group", "method", "label", "dataset", "status", "cases")
    rows = [row for table in tables for row in table.rows]
    return Sheet(f"Effort ({mark})", parts, rows, [*names, *(column.key for column in _FIGURES)])


write_effort = frame.writer(sheet)


def spent_table(state: str) -> Table | None:
    """What was paid so far, by system and model, as ``cdpr spend`` shows it; None where nothing was."""
    if not (bills := [asdict(bill) for bill in spent(state)]):
        return None
    total = {"system": "In all"} | {c.key: sum(bill[c.key] for bill in bills) for c in _SPENT[2:]}
    total |= {f"{key}_mark": "total" for key in total}
    notes = [
        "The bill of all runs with the same paths.state, when this page was made: failed attempts, earlier results, "
        "judge and matcher are in it, and recorded answers cost nothing again.",
        "Of it unknown: the worst case of calls that timed out or whose process was killed; they may have been billed.",
    ]
    return Table(_SPENT, [*bills, total], "Spent so far, in US dollars.", notes, "tab:spent")


def effort_table(results: Results, decoding: str, mark: str, label: str = "effort") -> Table:
    """A row per system and data set; one for a system that is not run."""
    columns = [frame.METHOD, frame.DATA_SET, Column("cases", "Workups", linked=False), *_FIGURES]
    pairs = ((m, d) for m in results.methods for d in (results.datasets if m.runs else ("",)))
    rows = [_row(results, method, dataset, decoding) for method, dataset in pairs]
    text = f"What was asked per case, {decoding} decoding ({mark}); means over cases and seeds."
    return Table(columns, rows, text, _notes(results), f"tab:{label}_{decoding}", by="group")


def _row(results: Results, method: Method, dataset: str, decoding: str) -> Row:
    """Means over the cases of all seeds; a figure that no record holds stays empty."""
    row = {"tier": results.settings.tier, "decoding": decoding, "group": method.group, "method": method.name,
           "label": method.label, "dataset": dataset, "dataset_text": results.datasets.get(dataset)}  # fmt: skip
    try:
        rows = results.rows(method, dataset, decoding).rename(columns={"n_invalid": "invalid"})
    except NotMeasured as error:
        return row | {"status": error.reason, "hole": error.reason}
    names = [column.key for column in _FIGURES if column.key in rows]
    means = dict(zip(names, rows[names].to_numpy(float).mean(axis=0).tolist(), strict=True))
    means["forced"] *= 100
    if prices := _prices(results.settings, method):
        usd = prices.usd(means["prompt_tokens"], means["completion_tokens"])
        means |= {"usd": usd, "usd_in_all": usd * len(rows)}
    row |= {"status": "measured", "cases": len(rows), "runs": results.behind(dataset, method)}
    return row | {name: value for name, value in means.items() if value == value}  # without NaN


def _prices(settings: Settings, method: Method) -> Prices | None:
    """What the model behind a row costs, where a provider charges for it."""
    agent = settings.agents.get(method.name)
    model = model_of(settings, agent) if agent else None
    return model.prices if model else None


def _notes(results: Results) -> list[str]:
    notes = [
        "Tokens as the server counts them; empty where it does not report them. Answer tokens include the thoughts "
        "before an answer. Unmarked: the model's answer tag was missing, so the whole reply was read as the answer.",
        "Workups: the cases once for each seed. Forced: workups that reached the limit of turns or of text and had to "
        "end in a diagnosis. Silent: calls with an empty reply. Too long: silent calls whose prompt exceeded the "
        "context window. Refused: by the model or a filter. Failed: the server answers others, but never this one. Cut "
        "prompts: those that exceeded policy.max_prompt_tokens, or of which the server read fewer tokens than they "
        "have words. Cut results: longer than environment.prompt.max_observation_chars.",
        "Invalid replies name neither an examination nor a diagnosis. USD: these tokens at the prices of "
        "workflow/models.yaml, without discounts: an upper bound, whether answers were bought or replayed.",
    ]
    for method in results.methods:
        if method.runs and (prices := _prices(results.settings, method)):
            notes.append(f"{method.label}: {prices.input:g} USD a million tokens asked, {prices.output:g} answered "
                         f"({prices.source}, {prices.date}).")  # fmt: skip
    return notes
