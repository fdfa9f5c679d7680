"""Open decisions of the paper about published diagnostic agents. Numbers that their descriptions fix are constants in
``cdpr/agents``."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, PositiveInt

from .section import Section, key


class MDAgents(Section):
    rounds: PositiveInt = key(1, "Rounds of the debate (the code's: 5).", paper="Kim et al. 2024", decision="D32")
    turns: PositiveInt = key(2, "Turns of a round (the code's: 5).", paper="Kim et al. 2024", decision="D32")


class DiagAgent(Section):
    instruction: str | None = key(None, decision="D34")
    """File with the instruction of the model's training; empty: one in our own words with the same labels."""


class Frameworks(Section):
    temperature: NonNegativeFloat | None = key(None, decision="D30")
    """Temperature of MDAgents and ToR for all replies but decisions; empty: that of the evaluated decoding."""
    md_agents: MDAgents = Field(default_factory=MDAgents, description="MDAgents, row `mdagent`.")
    diag_agent: DiagAgent = Field(
        default_factory=DiagAgent, description="DiagAgent, rows `diagagent_8b` and `diagagent_14b`."
    )

    @property
    def paths(self) -> dict[str, str]:
        """Every file of the user's own, by its key in the settings."""
        path = self.diag_agent.instruction
        return {"frameworks.diag_agent.instruction": path} if path else {}
