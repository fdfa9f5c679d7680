"""The table of open cases: every agent on public cases outside the benchmarks, and on the user's own cases in FHIR.

It has the layout of the main table, but no average, since these cases are in none of the paper's benchmarks.
"""

from pathlib import Path

from ..settings import Settings, SettingsError
from . import layout
from .effort import effort_table
from .main_table import interval_table, long_rows, main_results_table
from .methods import open_datasets, open_methods, why_unfit
from .results import Results
from .table import Sheet


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Return three tables for each decoding from the results in ``folder``: the agents' results in the layout of the
    main table; the numbers of cases and seeds behind them, with intervals; and the calls, tokens and dollars of
    language models per case. Open cases are cases outside the benchmarks: public ones, or the user's own in FHIR.

    Raises SettingsError where the settings name no open cases or no agent can be run on them, and as :class:`Results`
    does.
    """
    datasets = open_datasets(settings)
    if not datasets:
        raise SettingsError("there are no open cases: set data.agentclinic.path to agentclinic_medqa.jsonl "
                            "(docs/how-to/real-data.md names the other files)")  # fmt: skip
    methods = open_methods(settings)
    if all(why_unfit(settings, run, dataset) for method in methods for run in method.runs for dataset in datasets):
        raise SettingsError(
            "no model can diagnose the open cases yet: `make local-llm` downloads one, then add "
            "`--configfile config/local_llm.yaml`; `cdpr systems` says what each row needs"
        )
    results = Results(settings, folder, methods, datasets)
    most = settings.evaluation.open_cases.cases
    # The caption's words on the origin of the cases, in place of those of the benchmarks.
    how_many = "all cases" if most is None else f"up to {most} cases"
    mark = f"tier: {settings.tier} — {how_many} of each data set"
    functions = {"levels": main_results_table, "intervals": interval_table, "effort": effort_table}
    tables = [make(results, decoding, f"open_cases.{name}", mark=mark)
              for name, make in functions.items() for decoding in results.decodings]  # fmt: skip
    return layout.declared_sheet(settings, "open_cases", tables, long_rows(results), f"Open cases ({mark})")
