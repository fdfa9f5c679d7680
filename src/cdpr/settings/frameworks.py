"""Published diagnostic agents that ask a language model many times, or in words of their own: the numbers of their
descriptions. One section for each file in ``cdpr/agents`` that follows one of them, under that file's name."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from .section import Section, Share, key

Quirks = Literal["repaired", "public"]
_QUIRKS = "`repaired`: as described; `public`: with what the published code does beside its description."
_TEMPERATURE = "Temperature of what is not a decision; empty: that of the decoding that is evaluated."


class MedAgentsTokens(Section):
    fields: PositiveInt = key(50, "The fields of the experts.", paper="Tang et al. 2024, code")
    analysis: PositiveInt = key(300, paper="Tang et al. 2024, code")
    """One expert's analysis; its unfinished last sentence is left out."""
    report: PositiveInt = key(2500, "The report, and each revision of it.", paper="Tang et al. 2024, code")
    vote: PositiveInt = key(30, "A vote.", paper="Tang et al. 2024, code")
    advice: PositiveInt = key(500, "The advice of one who voted no.", paper="Tang et al. 2024, code")
    decision: PositiveInt = key(2500, "The decision, and the proposal of options.", paper="Tang et al. 2024, code")


class MedAgents(Section):
    quirks: Quirks = key("repaired", _QUIRKS, decision="D31")
    options: Literal["proposer", "none"] = key("proposer", decision="D30")
    """`proposer`: one further call proposes the actions among which the experts choose; `none`: they are asked openly,
    and there are no experts for options."""
    candidates: int = key(4, "Most actions that are proposed.", ge=1, le=5, decision="D30")
    question_experts: PositiveInt = key(5, "Experts who read the case.", paper="Tang et al. 2024, NUM_QD = 5")
    option_experts: PositiveInt = key(2, "Experts who read the options.", paper="Tang et al. 2024, NUM_OD = 2")
    rounds: PositiveInt = key(3, "Votes on the report at most.", paper="Tang et al. 2024, max_attempt_vote = 3")
    tokens: MedAgentsTokens = Field(default_factory=MedAgentsTokens, description="Longest answer of each stage.")


class MDAgents(Section):
    quirks: Quirks = key("repaired", _QUIRKS, decision="D32")
    difficulty: Literal["adaptive", "basic", "intermediate", "advanced"] = key("adaptive", paper="Kim et al. 2024")
    """Who decides: one clinician, a group that debates, several teams; `adaptive`: the model says which, once for a
    case."""
    recheck: bool = key(False, decision="D32")
    """Whether difficulty and clinicians are asked for at every state anew."""
    experts: int = key(5, "Clinicians who debate.", paper="Kim et al. 2024, code", ge=2)
    rounds: PositiveInt = key(1, "Rounds of the debate (the code's: 5).", paper="Kim et al. 2024", decision="D32")
    turns: PositiveInt = key(2, "Turns of a round (the code's: 5).", paper="Kim et al. 2024", decision="D32")
    teams: int = key(3, paper="Kim et al. 2024, code", ge=2)
    """Teams of an advanced case, the first to assess and the final to review among them."""
    members: int = key(3, "Clinicians of a team, its lead among them.", paper="Kim et al. 2024, code", ge=2)
    temperature: NonNegativeFloat | None = key(None, _TEMPERATURE, decision="D30")
    max_tokens: PositiveInt = key(1024, "Tokens of one answer; its description names no limit.")


class TreeOfReasoning(Section):
    quirks: Quirks = key("repaired", _QUIRKS, decision="D33")
    activate_empty: bool = key(True, decision="D33")
    """Whether a doctor of whose field nothing is known yet takes part, and says what to examine."""
    rounds: PositiveInt = key(1, "Rounds of discussion.", paper="Peng et al. 2025, num_rounds = 1")
    turns: PositiveInt = key(1, "Turns of a round.", paper="Peng et al. 2025, num_turns = 1")
    addresses: Share = key(0.7, paper="Peng et al. 2025, code")
    """Probability with which a doctor who takes part in the discussion addresses each of the others."""
    temperature: NonNegativeFloat | None = key(None, _TEMPERATURE, decision="D30")
    max_tokens: PositiveInt = key(1024, "Tokens of one answer; its description names no limit.")
    retriever: Literal["none", "bm25"] = key("none", decision="D33")
    """`bm25`: doctors read the passages of your own texts that match best (`pip install bm25s`)."""
    snippets: PositiveInt = key(3, "Passages that a doctor reads.", paper="Peng et al. 2025, k = 3")
    statpearls: str | None = key(None, paper="Peng et al. 2025: StatPearls")
    """Folder of `.txt` files, passages set apart by empty lines, for the doctor of the chief complaint."""
    textbooks: str | None = key(None, "Such a folder for the other doctors.", paper="Peng et al. 2025: textbooks")


class DiagAgent(Section):
    quirks: Quirks = key("repaired", _QUIRKS, decision="D34")
    instruction: str | None = key(None, decision="D34")
    """File with the instruction that the model was trained with; empty: one in our own words with the same labels."""
    forced: Literal["asked", "unasked"] = key("asked", decision="D34")
    """Whether the model is told, when a diagnosis is forced, that it has to give one; its own protocol has no forced
    diagnosis."""
    max_tokens: PositiveInt = key(2048, "Tokens of one reply.", paper="Qiu et al. 2025, code")


class Frameworks(Section):
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
        """Every file and folder of the user's own, by its key in the settings."""
        tor = self.tree_of_reasoning
        found = {
            "tree_of_reasoning.statpearls": tor.statpearls if tor.retriever != "none" else None,
            "tree_of_reasoning.textbooks": tor.textbooks if tor.retriever != "none" else None,
            "diag_agent.instruction": self.diag_agent.instruction,
        }
        return {f"frameworks.{name}": path for name, path in found.items() if path}
