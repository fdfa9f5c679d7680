"""Cost-aware sequential diagnosis: counterfactual diagnostic process rewards (CDPR), trained with GRPO.

The public names are imported on first use: ``import cdpr`` alone loads no other module, so that jobs start fast. The
stub ``__init__.pyi`` lists them, for type checkers and for this module. docs/reference/api.md documents them.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_IMPORTS = [node for node in _STUB.body if isinstance(node, ast.ImportFrom)]
PUBLIC = {alias.name: f"cdpr.{node.module}" for node in _IMPORTS for alias in node.names}
"""The module of each public name."""

__all__ = list(PUBLIC)


def __getattr__(name: str) -> Any:
    """Import the public name ``name`` on its first use. Raises AttributeError for any other name."""
    if name not in PUBLIC:
        raise AttributeError(f"module 'cdpr' has no attribute {name!r}")
    return getattr(importlib.import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    """List the names of this module for completion, also the public names that are not imported yet."""
    return sorted([*globals(), *__all__])
