"""Cost-aware sequential diagnosis: counterfactual diagnostic process rewards (CDPR), trained with GRPO."""

__version__ = "0.1.0"
