"""Cost-aware sequential diagnosis: counterfactual diagnostic process rewards (CDPR), trained with GRPO."""

__version__ = "0.2.0"
