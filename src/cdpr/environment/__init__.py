"""The decision process: states, actions, transitions, prompts, episodes. Knows nothing of who acts."""

from .action import parse_action, render_action
from .environment import DiagnosticEnvironment
from .episode import Agent, continue_episode, run_episode, run_episodes
from .judge import AliasJudge
from .matcher import ExamMatcher
from .prompt import FORCED_PREFIX, PromptBuilder
from .state import (
    Action,
    Effort,
    FinalDiagnosis,
    Invalid,
    Observation,
    RequestTest,
    State,
    Step,
    Trajectory,
    Turn,
)

__all__ = [
    "FORCED_PREFIX",
    "Action",
    "Agent",
    "AliasJudge",
    "DiagnosticEnvironment",
    "Effort",
    "ExamMatcher",
    "FinalDiagnosis",
    "Invalid",
    "Observation",
    "PromptBuilder",
    "RequestTest",
    "State",
    "Step",
    "Trajectory",
    "Turn",
    "continue_episode",
    "parse_action",
    "render_action",
    "run_episode",
    "run_episodes",
]
