"""Settings of what is trained and where it is shown (``workflow/experiments.yaml``), and of the agents that it is
compared with (``workflow/agents.yaml``).

The section ``frameworks`` sets what the papers on published agents leave open. Numbers that those papers fix are
constants in ``cdpr/agents``.
"""

from functools import partial
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveInt, model_validator

from .runs import check_name
from .section import Section, key

FILE = "workflow/experiments.yaml"
AGENTS_FILE = "workflow/agents.yaml"
POLICY = "policy"  # as the model of an agent: the policy from which training starts
Figure = Literal["accuracy_cost", "learning_curves", "training_efficiency", "engines", "frontier", "frontier_grid"]
Table = Literal["main_table", "ablations", "comparators", "frontier_parts"]
# The name of a variant or sweep; SettingsError for one that cannot be part of a path.
TrainedName = Annotated[str, AfterValidator(partial(check_name, kind="variant or sweep"))]
Value = bool | int | float | str | None  # of a setting that a variant or sweep changes


class Look(Section):
    """The look of a row of the main table in figures. Two rows must differ in at least two of the three settings."""

    colour: str = key("#000000", "Colour, as matplotlib reads it.")
    marker: str = key("o", "Marker, as matplotlib reads it.")
    line: str | tuple[float, tuple[float, ...]] = key("-", "Line, as matplotlib reads it.")


class Variant(Section):
    """A variant of the experiment: named changes of the settings with which a policy is trained."""

    label: str = key("", "What tables and figures call it.", min_length=1)
    change: dict[str, Value] = key({}, "Settings that differ from the configuration, by dotted name.")
    feeds: list[Literal[Table, Figure]] = key([], "Tables and figures that show it.")
    seeds: int | None = key(None, "How many of `seeds` are trained; empty: all.", gt=0)
    paper: str = key("", "Row of the paper's Table 1 that it reproduces.")
    look: Look | None = Field(default=None, description="How it looks in figures; empty: a spare look.")


class Sweep(Section):
    """A sweep: several values of one setting, with each of which a policy is trained."""

    symbol: str = key("", "Sign of the setting in the paper, or a short name.", min_length=1)
    label: str = key("", "What the setting is.", min_length=1)
    setting: str = key("", "Dotted name of the setting.", min_length=1)
    values: list[Value] = key([], "Points beside the configuration's own value, which is always one.")
    feeds: Literal["sensitivity", "further_sensitivity"] = key("sensitivity", "Figure that shows it.")
    seeds: int | None = key(None, "How many of `seeds` are trained; empty: all.", gt=0)


class Experiments(Section):
    """The registry of what is trained: variants, and sweeps of single settings."""

    variants: dict[TrainedName, Variant] = key({}, "Variants by name.")
    sweeps: dict[TrainedName, Sweep] = key({}, "Sweeps of one setting by name.")
    swept: list[str] | None = key(None, "Sweeps that `reproduce_paper` trains; empty: all, as `sensitivity_all`.")
    points: int | None = key(None, "Most points of a sweep beside the configuration's own; empty: all.", ge=0)


class AgentEntry(Section):
    """An entry of ``workflow/agents.yaml``: a row of the main table that is not trained by an experiment, such as a
    language model or a published agent."""

    label: str = key("", "Its name in tables and figures; empty: that of its model.")
    #: Section of the main table; `own`: agents of yours, which need no `model`.
    group: Literal["closed", "open", "medical", "trained", "own", "reference"] = key("open")
    paper: str = key("", "The row of the paper's Table 1 that it reproduces.")
    acts: str = key("cdpr.agents.policy:PolicyAgent", "The agent, `module:Class`.")
    #: The acting model: `policy` (the one that training starts from), an entry of `workflow/models.yaml`, a Hugging
    #: Face folder, or the address of a server.
    model: str | None = key(None)
    served_as: str | None = key(None, "Name of the model on the server of this address.")
    look: Look | None = Field(None, description="How it looks in figures; empty: a spare look.")

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        """Return the entry unchanged. Raises ValueError for an agent that needs a model and names none."""
        if self.model is None and self.group not in ("own", "reference"):
            raise ValueError("name its `model`: policy, an entry of workflow/models.yaml, a folder or an address; or, "
                             "for an agent of your own without one, write `group: own`")  # fmt: skip
        return self

    @property
    def knows_hospital(self) -> bool:
        """Whether the agent is a reference policy, which knows the probabilities of the synthetic hospital. It cannot
        act on real cases. It is deterministic, so greedy and sampled decoding do not differ."""
        return self.group == "reference"

    @property
    def own_policy(self) -> bool:
        """Whether the agent acts by the policy from which training starts."""
        return self.model == POLICY


class MDAgentsSettings(Section):
    """The length of the debate of language models in the published agent MDAgents: its rounds, and the turns of a
    round."""

    rounds: PositiveInt = key(1, "Rounds of the debate (the code's: 5).", paper="Kim et al. 2024", decision="D32")
    turns: PositiveInt = key(2, "Turns of a round (the code's: 5).", paper="Kim et al. 2024", decision="D32")


class DiagAgentSettings(Section):
    """The setting of the prompt of the published agent DiagAgent."""

    #: File with the instruction of the model's training; empty: one of ours with the same labels.
    instruction: str | None = key(None, decision="D34", is_path=True)


class Frameworks(Section):
    """Settings of published agents that call a model several times for one decision: what their papers leave open."""

    #: Temperature of MDAgents and ToR for all replies but decisions; empty: that of the decoding.
    temperature: NonNegativeFloat | None = key(None, decision="D30")
    md_agents: MDAgentsSettings = Field(default_factory=MDAgentsSettings, description="MDAgents, row `mdagent`.")
    #: DiagAgent, rows `diagagent_8b` and `diagagent_14b`.
    diag_agent: DiagAgentSettings = Field(default_factory=DiagAgentSettings)
