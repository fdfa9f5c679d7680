"""What the results page and ``snakemake --report`` show of tables and figures: ``workflow/page.yaml``."""

from ..job import PageEntry
from ..settings.section import read_shipped
from .stages import TABLES

# The entry of a table or figure that workflow/page.yaml does not list.
NOT_SHOWN = PageEntry("Further results", "")


def stage_of_result(path: str) -> str:
    """The stage that makes a table or figure: ``tables/ablations`` -> ``write_ablations``, ``figures/frontier`` ->
    ``plot_frontier``. Table 1, ``tables/main_results``, is made by ``write_main_table``."""
    if path == "tables/main_results":
        return "write_main_table"
    kind, _, name = path.partition("/")
    return f"{'write' if kind == 'tables' else 'plot'}_{name}"


def read_page() -> dict[str, PageEntry]:
    """Read the tables and figures of the page in their order, by file without its ending (``tables/ablations``)."""
    entries = {}
    for chapter, texts in read_shipped("workflow/page.yaml").items():
        for path, text in texts.items():
            sheet = str(TABLES.get(stage_of_result(path), ""))  # empty for a figure
            options = text if isinstance(text, dict) else {"text": text}  # a dictionary has the text and `apart`
            entries[path] = PageEntry(chapter, file=path + (".md" if sheet else ".png"), sheet=sheet, **options)
    return entries
