"""The decision process: states, actions, transitions, prompts, episodes. Knows nothing of who acts."""

# ruff: noqa: F401

from .episode import WAVE, Agent, DiagnosticEnvironment, Policy, case_seed, run_episode, run_episodes
from .judge import Judge, TableJudge
from .matcher import Matcher, TableMatcher
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
    parse_action,
    render_action,
)
