"""The decision process: states, actions, transitions, prompts, episodes. It does not depend on agents."""

# ruff: noqa: F401

from .episode import EPISODES_AT_ONCE, Agent, DiagnosticEnvironment, Policy, case_seed, run_episode, run_episodes
from .prompt import FORCED_PREFIX, NO_ANSWER, PromptBuilder, observation_text, opening_messages
from .state import Effort, FinalDiagnosis, RequestTest, State, Step, Trajectory, Turn, parse_action, render_action
from .table_judging import TableJudge, TableMatcher
from .utility import TERMS, ReturnOf, weighted_utility
