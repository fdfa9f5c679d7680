"""Calls of language models that are not trained here: what is recorded, and what they may cost."""

from __future__ import annotations

from typing import Literal

from .section import Section, key


class Calls(Section):
    mode: Literal["record", "replay", "live"] = key("record")
    """`record`: an answer is kept under `state`, and the same question is not asked twice; `replay`: no model is asked,
    all answers are kept ones; `live`: every question is asked, nothing is kept."""
    budget_usd: float | None = key(None, ge=0)
    """US dollars that all calls together may cost, those of earlier runs with the same `paths.state` included (`cdpr
    spend` tells how much that is); empty: no limit. No call is sent that might exceed it."""
