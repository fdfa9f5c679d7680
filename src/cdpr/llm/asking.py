"""On whose behalf a model is asked. Errors, recordings and bills name it; no model is told."""

from __future__ import annotations

from contextvars import ContextVar

SYSTEM: ContextVar[str] = ContextVar("system", default="")
"""The agent that is evaluated, or what else pays for the call."""
CASE: ContextVar[str] = ContextVar("case", default="")
"""The number of the case that it works up. Errors about credentialed cases name a pseudonym in its place."""
