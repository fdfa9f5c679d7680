"""Calls of language models that are not trained here: recordings and costs."""

from __future__ import annotations

from typing import Literal

from .section import Section, key


class Calls(Section):
    mode: Literal["record", "replay", "live"] = key("record")
    """`record`: answers are recorded under `state`, and no question is sent twice; `replay`: no question is sent, all
    answers are recorded ones; `live`: every question is sent, nothing is recorded."""
    budget_usd: float | None = key(None, ge=0)
    """Most US dollars that all calls together may cost, with those of earlier runs of the same `paths.state` (`cdpr
    spend` shows the sum); empty: no limit. No call is sent that might exceed it."""
