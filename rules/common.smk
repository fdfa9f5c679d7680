"""Helpers of all rules: of `experiment` (runs, data sets, run keys) and `settings`. Memory is in MB, runtime in minutes."""

import difflib
import functools
import os
import shlex
from itertools import product

key_of = functools.cache(experiment.key)  # a job has it as a parameter, and in its command
PAGE = experiment.page()  # the shown tables and figures, such as `tables/ablations`
WITH_POINTS = ("sensitivity", "sensitivity_all", "further_sensitivity")  # figures with a file of points


def given(path):
    """A path as the input of a rule, in a list: what a job makes (`<results>/...`), or a file of the user's own, whose
    content counts (by the run key) and not its time. The list is empty for no path, and where the user's file is
    missing: so the workflow can be planned all the same; a run is refused before its first job."""
    if not path or path.startswith("<results>"):
        return [path] if path else []
    return [ancient(path)] if os.path.exists(path) else []


def job(stage, **options):
    """The parameters `key` and `command` of a rule: the run key, and the words behind `cdpr` in its shell command
    (stage, key, options, named files). `stage` is a name, or a function of the wildcards that returns it. Options are
    the wildcards `run` and `dataset`. Those given here, as lists, are for a job that does the work of several in one
    process: an input or output then has one file for all of them, or one for each. The key is a parameter of its own,
    for Snakemake reruns no job because of a parameter that depends on files, as the command does."""

    def options_of(wildcards):
        return {name: [value] for name, value in wildcards.items() if name in ("run", "dataset")} | options

    def key(wildcards):
        chosen, name = options_of(wildcards), stage(wildcards) if callable(stage) else stage
        # One key for each combination of the values of the options.
        keys = [key_of(name, **dict(zip(chosen, values))) for values in product(*chosen.values())]
        return digest(keys) if len(keys) > 1 else keys[0]

    def command(wildcards, input, output):
        words = [stage(wildcards) if callable(stage) else stage, "--key", key(wildcards)]
        words += [word for name, values in options_of(wildcards).items() for word in (f"--{name}", *values)]
        for flag, files in (("--input", input), ("--output", output)):
            named = {label: [path] if isinstance(path, str) else path for label, path in files.items()}
            words_of_files = [f"{label}={path}" for label, paths in named.items() for path in paths]
            words += [flag, *words_of_files] if words_of_files else []
        return shlex.join(words)

    return {"key": key, "command": command}


def result_of(wildcards):
    """A table or figure as `tables/ablations`, by the only wildcard of its rule: `table` or `figure`."""
    [(kind, name)] = wildcards.items()
    return f"{kind}s/{name}"


def stage_of(wildcards):
    """The command that writes a table or draws a figure."""
    return page.stage_of_result(result_of(wildcards))


def on_page(wildcards):
    """What the results page and `snakemake --report` show of it."""
    return PAGE.get(result_of(wildcards), page.NOT_SHOWN)


def shown(path):
    """Mark the file of a table or figure that `snakemake --report` shows, in the chapter that it has on the page."""
    return report(path, caption="caption.rst", category=lambda wildcards: on_page(wildcards).chapter)


def made(*results):
    """All files of tables and figures, each given as `tables/ablations`."""
    kinds = {result: ["md", "csv", "tex"] if result.startswith("tables/") else ["png", "pdf"] for result in results}
    kinds |= {f"figures/{name}": ["png", "pdf", "csv"] for name in WITH_POINTS if f"figures/{name}" in results}
    return [f"<results>/{result}.{kind}" for result in results for kind in [*kinds[result], "run.json"]]


def nearest_targets(wildcards):
    """Raise an error that names the targets most like a mistyped one."""
    names = [rule.name for rule in workflow.rules if not rule.has_wildcards()]
    near = " or ".join(difflib.get_close_matches(wildcards.target, names, 3)) or "one of --list-target-rules"
    raise SettingsError(f"there is no target {wildcards.target}; did you mean {near}?")
