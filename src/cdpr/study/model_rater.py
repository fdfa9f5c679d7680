"""A language model as a further rater. It fills in the form of the first rater, and stands apart from the others."""

import asyncio
import re

from ..environment.model_judging import Questions
from ..environment.once import all_ended
from ..escape import environment
from ..job import Job
from ..llm import ModelSpec, open_model
from ..llm.guard import disclosed
from ..settings import Settings, SettingsError
from ..settings.queries import named_model
from . import templates
from .blinding import Items
from .forms import Presentation
from .ratings import MODEL, write_ratings
from .records import StudyError, StudyState, read_lines
from .rubric import dimensions, rubric

_LONGEST = 64  # tokens of an answer
_SCORES = re.compile(r"\b([1-5])\b")


def rate_by_model(settings: Settings, job: Job) -> None:
    """Stage ``rate_by_model``: ask ``study.model_rater`` about every proposal. Raises SettingsError and GovernanceError
    before any case is shown, StudyError for an answer without five scores."""
    states, items = read_lines(job.inputs["states"], StudyState), Items.read(job.inputs["cards"])
    spec = rater_spec(settings, credentialed=any(state.credentialed for state in states))
    job.tags.update(disclosed([spec.check(states[0].dataset)]))
    rater = next(iter(items.forms))
    rows = Presentation(states, items).rows(rater)
    prompts = [f"{row['patient']}\n\nProposed:\n{row['proposed']}\n\nScores:" for row in rows]
    questions = Questions(open_model(spec), rules(), "rater", _LONGEST)
    asyncio.run(all_ended(map(questions.ask, prompts)))
    rated = {str(row["code"]): scores(questions.answer(prompt)) for row, prompt in zip(rows, prompts, strict=True)}
    write_ratings(job.out["ratings"], items.study, rater, MODEL, rated)
    print(f"{settings.study.model_rater} rated {len(rated)} proposals")


def rater_spec(settings: Settings, *, credentialed: bool) -> ModelSpec:
    """The model of ``study.model_rater``. Raises SettingsError for one that costs money without leave, or is
    nowhere."""
    name = settings.study.model_rater
    if name is None:
        raise SettingsError("no language model rates: name one in study.model_rater")
    entry = named_model(settings, name)
    if entry.paid and not entry.enabled and settings.calls.mode != "replay":
        raise SettingsError(f"study.model_rater: every answer of {entry.label or entry.id} costs money; set "
                            "`enabled: true` in its entry below `models`, or study.model_rater to null")  # fmt: skip
    return ModelSpec.of_entry(entry, settings, credentialed=credentialed)


def rules() -> str:
    """The instructions to the model: the rubric and the format of the answer."""
    return environment(templates).get_template("rules.txt").render(rubric=rubric()).strip()


def scores(answer: str) -> dict[str, int]:
    """The last five numbers from 1 to 5 of an answer. Raises StudyError where there are fewer."""
    matches = _SCORES.findall(answer)[-len(dimensions()) :]
    if len(matches) < len(dimensions()):
        raise StudyError(f"the model rater gave {len(matches)} scores instead of {len(dimensions())}; name "
                         "another model in study.model_rater")  # fmt: skip
    return dict(zip(dimensions(), map(int, matches), strict=True))
