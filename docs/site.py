"""What the documentation site has beside the pages of docs/ (a hook of MkDocs, see mkdocs.yml).

- Documents from elsewhere: the README (landing page), config/README.md (settings), CONTRIBUTING.md, CHANGELOG.md.
- Reference made from the code: rules, files, the command `cdpr`; mkdocstrings makes that of the Python API.
- A page for every source file or folder that a document links to. So a link works on GitHub and on the site.
- The results page and the inspector of the last run as a live example, if they exist (`RESULTS=results/ci make docs`).
"""

import ast
import os
import posixpath
import re
import shutil
import sys
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(os.environ.get("RESULTS", "results"))
# Documents by their place in the repository, and their page on the site.
DOCUMENTS = {
    "README.md": "index.md",
    "docs/README.md": "overview.md",
    "config/README.md": "reference/settings.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
# What a search shows first, and last.
BOOSTS = {"glossary.md": 3, "reference/settings.md": 3, "tutorial.md": 2}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s]+)(?=\))")
FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1\s*$", re.MULTILINE | re.DOTALL)


def on_files(files, config):
    """Add the pages that are no files of docs/."""
    files.remove(files.get_file_from_path("README.md"))
    texts = {f"docs/{page.src_uri}": page.content_string for page in files.documentation_pages()}
    texts |= {name: (ROOT / name).read_text(encoding="utf-8") for name in DOCUMENTS}
    made, sources = {}, set()
    for name, text in texts.items():
        made[_page_of(name)] = _with_links(text, name, sources)
    while sources:  # a page of a folder links to the files in it
        name = min(sources)
        sources.discard(name)
        made[_page_of(name)] = _source_page(name)
        if (ROOT / name).is_dir():
            sources |= {child for child in _children(name) if _page_of(child) not in made}
    made |= {"reference/rules.md": _rules(), "reference/files.md": _files(), "reference/cli.md": _commands()}
    made["live.md"] = _live_example()
    for uri, text in made.items():
        if old := files.get_file_from_path(uri):
            files.remove(old)
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Rank the page in searches."""
    page.meta.setdefault("search", {"boost": BOOSTS.get(page.file.src_uri, 1)})


def on_page_content(html, page, config, files):
    """Show the references in docstrings (:func:`name`) as code."""
    return (
        re.sub(r":(?:class|func|meth|mod|data|attr):(<code>)~?", r"\1", html) if "reference/api" in page.url else html
    )


def _page_of(name: str) -> str:
    """The page of a document, source file or folder of the repository."""
    if name.startswith("docs/") and (ROOT / name).is_file() and not name.endswith(".py"):
        return DOCUMENTS.get(name, name.removeprefix("docs/"))
    return DOCUMENTS.get(name) or f"source/{name}{'/index' if (ROOT / name).is_dir() else ''}.md"


def _with_links(text: str, name: str, sources: set[str]) -> str:
    """The text of a document with links between pages of the site. Collects the source files that it links to."""

    def page(match: re.Match) -> str:
        path, _, anchor = match[1].partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        if not (ROOT / target).exists():
            return match[1]  # MkDocs names the broken link
        uri = _page_of(target)
        if uri.startswith("source/"):
            sources.add(target)
        return posixpath.relpath(uri, posixpath.dirname(_page_of(name)) or ".") + (f"#{anchor}" if anchor else "")

    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(page, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(page, text[end:])])


def _children(name: str) -> list[str]:
    folder = ROOT / name
    return [f"{name}/{path.name}" for path in sorted(folder.iterdir())
            if path.is_file() and path.suffix in {".py", ".md", ".yaml", ".csv", ".txt", ".smk"}]  # fmt: skip


def _source_page(name: str) -> str:
    head = f"---\nsearch: {{exclude: true}}\nhide: [toc]\n---\n\n# `{name}`\n\n"
    if (ROOT / name).is_dir():
        return head + "".join(f"- [{Path(child).name}]({Path(child).name}.md)\n" for child in _children(name))
    language = {".py": "python", ".yaml": "yaml", ".smk": "python", ".json": "json"}.get(Path(name).suffix, "text")
    return f"{head}``````{language}\n{(ROOT / name).read_text(encoding='utf-8')}\n``````\n"


def _table(*rows: tuple[str, ...]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


def _stages():
    """The stages of the package, whose code needs no installation for this."""
    sys.path.insert(0, str(ROOT / "src"))
    from cdpr.pipeline.stages import STAGES

    return STAGES


def _codes(names) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _rule_texts() -> dict[str, tuple[str, str]]:
    """Docstring and text of every rule of the Snakefile and of rules/."""
    head = r'^(?:use )?rule (?:\w+ as )?(\w+)(?: with)?:\n    """(.*?)"""(.*?)(?=^\S|\Z)'
    texts = [path.read_text(encoding="utf-8") for path in [ROOT / "Snakefile", *sorted(ROOT.glob("rules/*.smk"))]]
    return {name: (about, rest) for text in texts for name, about, rest in re.findall(head, text, re.DOTALL | re.M)}


def _summary(call: str) -> str:
    """First sentence about a function `module:name`, without importing it."""
    module, _, name = call.partition(":")
    tree = ast.parse((ROOT / "src" / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8"))
    texts = [ast.get_docstring(node) or "" for node in tree.body if getattr(node, "name", "") == name]
    return texts[0].partition("\n\n")[0].replace("\n", " ") if texts else ""


def _rules() -> str:
    stages = _stages()
    rules = _rule_texts()
    by_stage = {stage: about for about, text in rules.values() for stage in re.findall(r'job\("(\w+)"', text)}
    public = [(f"`{name}`", about) for name, (about, text) in rules.items() if "job(" not in text]
    rows = [(f"`{name}`", by_stage.get(name) or _summary(stage.call), _codes(stage.options), _codes(stage.reads))
            for name, stage in stages.items()]  # fmt: skip
    return (
        "# Rules\n\nMade from `rules/` and `src/cdpr/pipeline/stages.yaml`.\n\n## Targets\n\n"
        "`snakemake --cores all TARGET` makes one of these.\n\n"
        + _table(("target", "makes"), *public)
        + "\n## Stages\n\nA stage is a subcommand of `cdpr`, which a rule runs, with one job for each value of its "
        "options. A job runs again when one of the settings in its last column changes.\n\n"
        + _table(("stage", "does", "options", "settings"), *rows)
    )


def _files() -> str:
    """Files as the rules name them; those of tables and figures by their stem."""
    rows = []
    for name, (_, text) in _rule_texts().items():
        outputs = re.search(r"^    output:\n(.*?)(?=^    \w|\Z)", text, re.DOTALL | re.MULTILINE)
        for line in outputs[1].splitlines() if outputs else ():
            if found := re.search(r'"(<results>/[^"]+)".*?(?:  # (.*))?$', line):
                rows.append((f"`{found[1]}`", found[2] or "", f"`{name}`"))
    return (
        "# Files\n\nMade from `rules/`. `<results>` is the setting `paths.results`, `{run}` a run such as "
        "`cdpr-seed0`, `{dataset}` a data set such as `mimic_iv`. A table without an ending is written as `.csv`, "
        "`.md` and `.tex`, a figure as `.png` and `.pdf`. Beside the first file of a job is its `run.json`.\n\n"
        + _table(("file", "content", "written by"), *sorted(rows))
    )


def _commands() -> str:
    _stages()
    from cdpr.pipeline.cli import build_parser

    parser = build_parser()
    commands = next(action.choices for action in parser._actions if action.dest == "command")
    blocks = [f"## `cdpr {name}`\n\n```text\n{command.format_help()}```\n" for name, command in commands.items()]
    return "\n".join(["# The command `cdpr`", "", f"```text\n{parser.format_help()}```", "", *blocks])


def _live_example() -> str:
    """The page of the live example. Its links are HTML: MkDocs would look for these files in docs/."""
    head = "# Live example\n\n"
    if not (ROOT / RESULTS / "report.html").exists():
        return (
            f"{head}This site was built without results. `snakemake --cores all reproduce_paper` makes them "
            "in 12 to 25 minutes on two cores; `make docs` then copies results page and inspector into the site.\n"
        )
    text = (
        f"{head}These are results of the last run before this site was built (`{RESULTS}`).\n\n"
        '- <a href="live/report.html">The results page</a>: verdict, figures, tables, every number with its runs\n'
    )
    if (ROOT / RESULTS / "inspector/index.html").exists():
        text += '- <a href="live/inspector/index.html">The decision inspector</a>: workups decision by decision\n'
    else:
        text += "- The decision inspector was not made: `snakemake inspector`\n"
    return f"{text}\n[See why an agent ordered an examination](how-to/inspect-decisions.md) explains the inspector.\n"


def on_post_build(config):
    """Copy the live example: the results page, what it links to, and the inspector."""
    results, live = ROOT / RESULTS, Path(config.site_dir) / "live"
    page = results / "report.html"
    if not page.exists():
        return
    links = re.findall(r'href="(?!\w+:|#)([^"#?]+)', page.read_text(encoding="utf-8"))
    for path in {page, *(results / link for link in links), *(results / "inspector").rglob("*")}:
        if path.is_file() and path.resolve().is_relative_to(results.resolve()):
            (live / path.relative_to(results)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, live / path.relative_to(results))
