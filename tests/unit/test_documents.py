"""The documents: every command in them parses and names what exists, every link leads somewhere."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import cdpr
from cdpr.pipeline.cli import build_parser
from cdpr.pipeline.experiment import Experiment
from cdpr.pipeline.stages import STAGES
from cdpr.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "config/README.md"])
RULES = {name: text for path in [ROOT / "Snakefile", *ROOT.glob("rules/*.smk")]
         for name, text in re.findall(r'^(?:use )?rule (?:\w+ as )?(\w+)(?: with)?:\n    """(.*?)"""',
                                      path.read_text("utf-8"), re.MULTILINE | re.DOTALL)}  # fmt: skip
# Rules whose outputs have wildcards are no targets.
RULE = re.compile(r"^(?:use )?rule (?:\w+ as )?(\w+)(?: with)?:\n((?:(?: .*)?\n)*)", re.MULTILINE)
WILDCARD = re.compile(r"\{\{|^(?!.*(?:expand\(|f\")).*\{", re.MULTILINE)
PATTERNS = {name for path in [ROOT / "Snakefile", *ROOT.glob("rules/*.smk")]
            for name, body in RULE.findall(path.read_text("utf-8"))
            for output in re.findall(r"^    output:\n((?: {8}.*\n)+)", body, re.MULTILINE)
            if WILDCARD.search(output)}  # fmt: skip
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
# Words in place of a name that a reader chooses, and of more words.
PLACE = re.compile(r"\$\w+|\[?[A-Z][A-Z_]*(\.\w+)?\]?|.*\.\.\.\]?|…")
OPERATORS = re.compile(r"&&?|\|\|?|;|\(|\)")
PROGRAMS = ("snakemake", "cdpr", "make")


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def commands(text: str) -> Iterator[tuple[list[str], bool]]:
    """Words of every command of ours in a document, and whether it is in a block, ready to be copied."""
    for language, block in FENCE.findall(text):
        if language in ("sh", "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                yield from ((words, True) for words in parts(line))
    for inline in INLINE.findall(FENCE.sub("", text)):
        if inline.split()[0].rpartition("/")[2] in PROGRAMS:
            yield from ((words, False) for words in parts(" ".join(inline.split())))


def parts(line: str) -> Iterator[list[str]]:
    """The commands of ours in a line of a shell, without variables before them, redirections and comments."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;()")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:  # a quotation over several lines
        return
    command: list[str] = []
    for word in [*words, ";"]:
        if not OPERATORS.fullmatch(word):
            command.append(word)
            continue
        while command and re.fullmatch(r"\w+=.*", command[0]):
            command.pop(0)
        if command and (program := command[0].rpartition("/")[2]) in PROGRAMS:
            end = next((at for at, each in enumerate(command) if re.match(r"\d?>", each)), len(command))
            yield [program, *command[1:end]]
        command = []


def problem(words: list[str], ready: bool, text: str) -> str | None:
    """What is wrong with a command of a document, None if nothing."""
    return {"snakemake": of_snakemake, "cdpr": of_cdpr, "make": of_make}[words[0]](words[1:], ready, text)


def of_make(words: list[str], ready: bool, text: str) -> str | None:
    there = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = [word for word in words if not re.match(r"-|\[?\w+=", word) and not PLACE.fullmatch(word)]
    return next((f"no target {word} in the Makefile" for word in named if word not in there), None)


def of_cdpr(words: list[str], ready: bool, text: str) -> str | None:
    if not words or PLACE.fullmatch(words[0]) or words[0].startswith("-"):
        return None
    choices = next(action.choices for action in build_parser()._actions if action.dest == "command")
    if words[0] not in choices:
        return f"no subcommand {words[0]}"
    if ready and not any(PLACE.fullmatch(word) for word in words):
        try:
            choices[words[0]].parse_args(words[1:])
        except SystemExit as stop:
            return f"cdpr {words[0]} refuses its arguments" if stop.code else None
    options = {word.strip("[]").partition("=")[0] for word in words[1:] if word.strip("[").startswith("--")}
    known = choices[words[0]]._option_string_actions.keys()
    return f"no option {min(options - known)} of cdpr {words[0]}" if options - known else None


def of_snakemake(words: list[str], ready: bool, text: str) -> str | None:
    from snakemake.cli import get_argument_parser

    words = [word for word in words if not re.fullmatch(r"\.\.\.|…", word)]
    if words and words[-1].startswith("--") and words[-1] in ("--configfile", "--config", "--workflow-profile"):
        words = words[:-1]  # a mention of the option
    try:
        options = get_argument_parser().parse_args(words)
    except SystemExit as stop:
        return "Snakemake refuses its arguments" if stop.code else None
    rules = {name for name in RULES.keys() - PATTERNS if name not in STAGES or not STAGES[name].options}
    for target in options.targets:
        if not (target in rules or PLACE.fullmatch(target) or "/" in target):
            return f"no target {target}"
    for file in map(str, options.configfile or ()):
        if not (
            (ROOT / file).is_file() or re.search(rf"^ *# {re.escape(file)}\b|`{re.escape(file)}`", text, re.MULTILINE)
        ):
            return f"no file {file}, and the document does not show it"
    if options.workflow_profile and not (ROOT / str(options.workflow_profile)).is_dir():
        return f"no profile {options.workflow_profile}"
    for value in options.config or ():
        if (key := value.partition("=")[0]) not in Settings.model_fields:
            return f"no section {key} of the settings"
    return None


# The changelog also names commands of earlier versions.
@pytest.mark.parametrize("document", [path for path in DOCUMENTS if path.name != "CHANGELOG.md"], ids=name_of)
def test_every_command_of_a_document_parses_and_names_what_exists(document, capsys):
    text = document.read_text(encoding="utf-8")
    wrong = [f"{shlex.join(words)}: {why}" for words, ready in commands(text)
             if (why := problem(words, ready, text))]  # fmt: skip
    assert not wrong, "\n".join(wrong)


def test_commands_are_found_and_wrong_ones_are_wrong():
    text = "```sh\nA=1 snakemake a -n && . x; .venv/bin/cdpr why b > c   # make d\n```\n`make e`, `cdprs f`"
    assert list(commands(text)) == [
        (["snakemake", "a", "-n"], True), (["cdpr", "why", "b"], True), (["make", "e"], False)]  # fmt: skip
    for line in ("make nothing", "cdpr nothing", "cdpr verify --nothing", "snakemake nothing", "snakemake --nothing",
                 "snakemake --configfile nothing.yaml", "snakemake -n --config nothing=1",
                 "snakemake --workflow-profile profiles/nothing"):  # fmt: skip
        assert problem(line.split(), True, ""), line
    for line in (
        "make test WORKERS=2",
        "cdpr config --explain credit.beta",
        "snakemake --configfile mine.yaml -- inspector",
    ):
        assert not problem(line.split(), True, "# mine.yaml"), line
    assert sum(len(list(commands(document.read_text("utf-8")))) for document in DOCUMENTS) > 150


def test_the_overlays_of_the_tutorial_are_settings_and_plan(tmp_path):
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    overlays = [block for language, block in FENCE.findall(text) if language == "yaml"]
    assert len(overlays) == 2
    for number, overlay in enumerate(overlays):
        path = tmp_path / f"{number}.yaml"
        path.write_text(overlay, encoding="utf-8")
        settings = load_settings(ROOT / "config.yaml", ROOT / "config/ci.yaml", path)
        assert Experiment(settings).key("train_policy", run="cdpr-seed0")
    of = Experiment(settings)
    assert of.key("train_policy", run="eager-seed0") != of.key("train_policy", run="cdpr-seed0")


def anchors(text: str) -> set[str]:
    """Addresses of the headings of a document, as GitHub and the site make them."""
    names: dict[str, int] = {}
    for title in re.findall(r"^#{1,6} +(.+?) *$", FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        names[slug] = names.get(slug, -1) + 1
    return {f"{slug}-{number}" if number else slug for slug, last in names.items() for number in range(last + 1)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_of_a_document_leads_somewhere(document):
    for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", FENCE.sub("", document.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{document.name} links to {link}"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{document.name} links to {link}"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout of git")
def test_git_ignores_folders_with_text_of_patients():
    folders = ["kept_study/", "returned/", "my_data/"]
    done = subprocess.run(["git", "check-ignore", *folders], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == folders, done.stderr


def test_the_site_shows_every_document():
    listed = set(re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    docs = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")} - {"README.md"}
    assert docs <= listed
    hook = (ROOT / "docs/site.py").read_text(encoding="utf-8")
    assert all(f'"{page}"' in hook for page in listed - docs)


def test_the_citation_names_this_version_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0" and citation["version"] == cdpr.__version__
    assert {"message", "title", "authors"} <= citation.keys()
    paper = citation["preferred-citation"]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert paper["title"] in readme
    assert all(f"{author['given-names']} {author['family-names']}" in readme for author in paper["authors"])
    assert f"## {cdpr.__version__} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_numbers_of_the_demo_are_those_of_one_run_on_every_page(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import demo_numbers

    demo = json.loads(demo_numbers.DEMO.read_text(encoding="utf-8"))
    written = set()
    for name in demo_numbers.PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert demo_numbers.render(text, demo) == text, f"{name}: run python docs/demo_numbers.py"
        written |= {block for _, block, _ in demo_numbers.BLOCK.findall(text)}
    assert written == demo_numbers.BLOCKS.keys()
    assert sum(text.count(demo["processor"]) for text in map(read, DOCUMENTS)) == 1


def test_the_readme_is_short_and_its_python_is_the_first_example():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    (code,) = (block for language, block in FENCE.findall(text) if language == "python")
    assert code == (ROOT / "examples/quick_start.py").read_text(encoding="utf-8")  # test_library.py runs it


def read(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def test_every_line_of_the_changelog_is_short():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    items = re.findall(r"^- (.*?)(?=\n- |\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    assert len(items) > 60
    assert not [item for item in items if len(item.split()) > 25], "one line of at most 25 words for each change"


def test_every_stage_is_run_by_a_rule():
    texts = [path.read_text("utf-8") for path in ROOT.glob("rules/*.smk")]
    run = {stage for text in texts for stage in re.findall(r'job\("(\w+)"', text)}
    assert run <= STAGES.keys() and {"write_table", "plot_figure", "plot_points"} <= RULES.keys()
    assert {name for name in STAGES.keys() - run if not re.match(r"(write|plot)_", name)} == set()


def test_the_forecast_of_time_lists_every_slow_rule():
    bodies = dict(rule for path in ROOT.glob("rules/*.smk") for rule in RULE.findall(path.read_text("utf-8")))
    jobs = {name for name, body in bodies.items() if "job(" in body}
    local = {name for name, body in bodies.items() if "localrule: True" in body}
    seconds_at_most = {*local, "map_costs", "remove_leaks"}
    durations = yaml.safe_load((ROOT / "workflow/durations.yaml").read_text("utf-8"))
    demo, miniature = durations["config"].keys(), durations["ci"].keys()
    assert {"train_policy", "make_hospital", "evaluate_agent"} <= jobs - seconds_at_most <= demo
    assert miniature <= demo <= RULES.keys(), "what is slow in miniature is slow in the demo"


# Words that were private to this project, and what they were for: the field's word replaces each.
GONE = {
    r"nobody|whom|in vain|told": "name the one who acts, or use the passive",
    r"anew": "again",
    r"mend(?:s|ed|ing)?": "repair, correct",
    r"go(?:es)? on|went on|going on": "continue",
    r"work(?:s|ed|ing)? up": "run an episode of, diagnose",
    r"stands?(?! for\b| out\b)|stood": "is",
    r"(?:it|they|which|that|files?|folders?|rows?) lies?|lies? in": "is in",
    r"(?-i:asked for)|what is (?:asked|read|drawn)": "requested, sampled",
    r"time of the processor|in time of": "CPU time",
    r"(?:is|are|was|were) worth": "value, utility",
    r"(?:labelled )?holes?": "missing",
    r"takes? the place of": "replaces",
    r"kills? of the \w+ until": "kill ... until",
}
STRINGS = (
    "agents",
    "credit",
    "environment",
    "evaluation",
    "llm",
    "report",
    "settings",
    "study",
    "training",
)  # packages whose strings are read


def words_of(path: Path) -> str:
    """The words of a document without its blocks of code, or of the strings of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return FENCE.sub("", text)
    nodes = ast.walk(ast.parse(text))
    return "\n".join(str(node.value) for node in nodes if isinstance(node, ast.Constant) and " " in str(node.value))


def gone(text: str) -> list[str]:
    plain = re.sub(r"`[^`]*`|\s+", " ", text)
    return [f"{found[0]!r}: {instead}" for words, instead in GONE.items()
            for found in re.finditer(rf"\b(?:{words})\b", plain, re.IGNORECASE)]  # fmt: skip


def test_words_that_are_gone_stay_away():
    source = ROOT / "src/cdpr"
    paths = [*DOCUMENTS, *(path for name in STRINGS for kind in ("py", "yaml", "md")
                           for path in source.glob(f"{name}/**/*.{kind}")
                           if "prompts" not in path.parts)]  # theirs are agents' own words  # fmt: skip
    assert len(paths) > 100
    wrong = [f"{name_of(path)}: {word}" for path in paths for word in gone(words_of(path))]
    assert not wrong, "\n".join(wrong)


def test_a_word_that_is_gone_is_found():
    for text in ("so that nobody works in vain", "The run goes\non", "its time of the processor", "the file lies in"):
        assert gone(text), text
    assert not gone("it stands for a group; run `anew`; the worth of a tale retold")
