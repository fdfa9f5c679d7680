"""The paper audited against itself: its statements (``workflow/paper/audit.yaml``) beside what :mod:`.checks` make of
its other figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from ..results.paper import PaperFacts, PaperFactsError, facts_folder, read_paper
from .checks import CHECKS, DECLARED, Check
from .recompute import Recomputed, Stated


@dataclass(frozen=True)
class AuditFinding:
    """One number or statement of the paper, and what the paper's other figures make of it."""

    id: str
    place: str
    says: str
    printed: str
    recomputed: str
    agrees: bool
    note: str = ""


def audit_paper(folder: str | Path | None = None) -> list[AuditFinding]:
    """All findings, in the order of ``audit.yaml`` in ``folder`` (default: ``workflow/paper``).

    Raises PaperFactsError for facts or statements that are malformed; the message names file and statement.
    """
    folder = Path(folder) if folder else facts_folder()
    path = folder / "audit.yaml"
    try:
        statements = TypeAdapter(list[Stated]).validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise PaperFactsError(f"{path}: no list of statements: {error}") from error
    facts = read_paper(folder)
    undeclared = [statement.id for statement in statements if not _declared(statement)]
    if unlike := set(undeclared) ^ set(CHECKS):
        raise PaperFactsError(f"{path}: only here or only in ledger/checks.py: {', '.join(sorted(unlike))}")
    findings = [finding for statement in statements for finding in _findings(facts, statement, path)]
    repeated = {f.id for f in findings if sum(g.id == f.id for g in findings) > 1}
    if repeated:
        raise PaperFactsError(f"{path}: the same id twice: {', '.join(sorted(repeated))}")
    return findings


def _declared(statement: Stated) -> Check | None:
    return next((check for field, check in DECLARED.items() if getattr(statement, field)), None)


def _findings(facts: PaperFacts, statement: Stated, path: Path) -> Iterator[AuditFinding]:
    check = _declared(statement) or CHECKS[statement.id]
    for stated in statement.repeated():
        try:
            found = check(facts, stated)
            for one in [found] if isinstance(found, Recomputed) else found:
                part = re.sub(r"^[a-z]+:", "", one.part).replace(":", ", ")
                yield AuditFinding(
                    id=".".join(filter(None, (stated.id, stated.at, one.part))),
                    place=", ".join(filter(None, (stated.place, part))), says=stated.says,
                    printed=one.printed or f"{stated.printed}{stated.unit}", recomputed=one.text, agrees=one.agrees,
                    note=" ".join(filter(None, (one.note, stated.note))),
                )  # fmt: skip
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise PaperFactsError(f"{path}: statement {stated.id}: {type(error).__name__}: {error}") from error
