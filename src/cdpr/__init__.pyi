"""The public names. Type checkers read this list, and ``__init__.py`` does."""

from .agents.policy import PolicyAgent as PolicyAgent
from .cases import CaseRecord as CaseRecord
from .cases import iterate_records as iterate_records
from .cases import write_records as write_records
from .costs import price_case as price_case
from .credit.process_reward import ProcessReward as ProcessReward
from .credit.scores import trajectory_score as trajectory_score
from .environment import Agent as Agent
from .environment import DiagnosticEnvironment as DiagnosticEnvironment
from .environment import FinalDiagnosis as FinalDiagnosis
from .environment import RequestTest as RequestTest
from .environment import State as State
from .environment import Trajectory as Trajectory
from .environment import Turn as Turn
from .environment import render_action as render_action
from .environment import run_episode as run_episode
from .evaluation.evaluate_agent import evaluate_cases as evaluate_cases
from .ingest.synthetic import synthetic_cases as synthetic_cases
from .settings import Settings as Settings
from .settings import load_settings as load_settings
from .training.algorithm import Algorithm as Algorithm
from .training.algorithm import Context as Context
from .training.algorithm import Group as Group
from .training.algorithm import GroupAdvantages as GroupAdvantages
from .training.algorithm import repeat_over_decisions as repeat_over_decisions
from .training.torch.loop import train as train
from .training.torch.trainer import Trainer as Trainer
from .training.torch.warm_start import warm_start as warm_start
from .training.training_run import TrainingRun as TrainingRun

PUBLIC: dict[str, str]
__version__: str
