"""What the results page and ``snakemake --report`` show of tables and figures: ``workflow/page.yaml``."""

from ..job import PageEntry
from ..settings.section import read_shipped
from .stages import TABLES

NOT_SHOWN = PageEntry("Further results", "")


def stage_of_result(path: str) -> str:
    """The stage of a table or figure: ``tables/ablations`` -> ``write_ablations``; one file has another name."""
    kind, _, name = path.partition("/")
    return {"tables": "write_", "figures": "plot_"}[kind] + ("main_table" if name == "main_results" else name)


def read_page() -> dict[str, PageEntry]:
    """The parts of the page in their order, by file without its ending."""
    parts = {}
    for chapter, texts in read_shipped("workflow/page.yaml").items():
        for path, text in texts.items():
            module = TABLES.get(stage_of_result(path).removeprefix("write_"), "")
            ending, options = ".md" if module else ".png", text if isinstance(text, dict) else {"text": text}
            parts[path] = PageEntry(chapter, file=path + ending, module=module, **options)
    return parts
