"""The environment `cdpr-diagnosis` of verifiers: `vf.load_environment("cdpr-diagnosis")`."""

from cdpr.verifiers_env import load_environment

__all__ = ["load_environment"]
