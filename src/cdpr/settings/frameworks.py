"""Published diagnostic agents that ask a language model many times, or in words of their own: open decisions of the
paper. Numbers that their descriptions fix are constants in ``cdpr/agents``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from .section import Section, key


class MedAgents(Section):
    options: Literal["proposer", "none"] = key("proposer", decision="D30")
    """`proposer`: one further call proposes the actions among which the experts choose; `none`: they are asked openly,
    and there are no experts for options."""


class MDAgents(Section):
    recheck: bool = key(False, decision="D32")
    """Whether difficulty and clinicians are asked for at every state anew."""
    rounds: PositiveInt = key(1, "Rounds of the debate (the code's: 5).", paper="Kim et al. 2024", decision="D32")
    turns: PositiveInt = key(2, "Turns of a round (the code's: 5).", paper="Kim et al. 2024", decision="D32")


class TreeOfReasoning(Section):
    activate_empty: bool = key(True, decision="D33")
    """Whether a doctor of whose field nothing is known yet takes part, and says what to examine."""


class DiagAgent(Section):
    instruction: str | None = key(None, decision="D34")
    """File with the instruction that the model was trained with; empty: one in our own words with the same labels."""
    forced: Literal["asked", "unasked"] = key("asked", decision="D34")
    """Whether the prompt says, when a diagnosis is forced, that the model has to give one; its own protocol has no
    forced diagnosis."""


class Frameworks(Section):
    temperature: NonNegativeFloat | None = key(None, decision="D30")
    """Temperature of what is not a decision, of MDAgents and ToR; empty: that of the decoding that is evaluated."""
    med_agents: MedAgents = Field(default_factory=MedAgents, description="MedAgents, row `medagent`.")
    md_agents: MDAgents = Field(default_factory=MDAgents, description="MDAgents, row `mdagent`.")
    tree_of_reasoning: TreeOfReasoning = Field(
        default_factory=TreeOfReasoning, description="Tree of Reasoning, row `tor`."
    )
    diag_agent: DiagAgent = Field(
        default_factory=DiagAgent, description="DiagAgent, rows `diagagent_8b` and `diagagent_14b`."
    )

    @property
    def paths(self) -> dict[str, str]:
        """Every file of the user's own, by its key in the settings."""
        path = self.diag_agent.instruction
        return {"frameworks.diag_agent.instruction": path} if path else {}
