"""Standard names of laboratory tests (LOINC) in a clinician's words.

Their grammar is ``component [property] in system by method`` for a quantity, ``component/100 cells in system`` for a
share, and ``component panel - system``. Property and method rarely tell which examination is meant, and the system does
so only where it is not blood.
"""

import functools
import re
from typing import NamedTuple

from ..files import parse_yaml, shipped_text
from .patterns import compile_patterns, compile_rewriting, fill, rewrite

_TABLE = fill(parse_yaml(shipped_text(__package__, "data", "standard_names.yaml")))
_NAMES = [re.compile(name) for name in _TABLE["names"]]
_PATTERN, _WORDS = compile_patterns(_TABLE["patterns"]), compile_rewriting(_TABLE["words"])


def clinical_names(name: str) -> tuple[str, ...]:
    """What a clinician may call the examination that a standard name means, the closest first; none for any other
    name."""
    return _names(name).clinical


def reporting_names(name: str) -> tuple[str, ...]:
    """Names of examinations whose result includes the quantity of a standard name (a panel, say), the closest first;
    none for any other name."""
    return _names(name).reporting


class _Names(NamedTuple):
    """The results of :func:`clinical_names` and :func:`reporting_names` for one name."""

    clinical: tuple[str, ...] = ()
    reporting: tuple[str, ...] = ()


@functools.lru_cache(maxsize=1 << 15)
def _names(name: str) -> _Names:
    """Translate a standard name to clinical and reporting names; both are empty for any other name."""
    plain = _PATTERN.noise.sub("", name).strip()
    if culture := _PATTERN.identified.fullmatch(plain):
        kind = _TABLE["cultures"].get(culture["what"].casefold(), "")
        kind = "Anaerobic " if "anaerob" in (culture["method"] or "").casefold() else kind
        specimen = _specimen(culture["system"]) or "Blood"
        return _Names((f"{specimen} {kind}culture", f"{kind or 'Bacterial '}culture"))
    match = next(filter(None, (pattern.fullmatch(plain) for pattern in _NAMES)), None)
    if match is None:
        return _Names()
    axes = dict.fromkeys(("property", "share", "panel", "system", "method"), "") | match.groupdict("")
    axes["challenge"] = name.partition(" post ")[2]
    component, system = rewrite(axes["component"], _WORDS), _specimen(axes["system"])
    if axes["panel"] and not _PATTERN.genome.search(component):
        component = f"{_PATTERN.count.sub('', component)} panel"
    elif axes["property"] in ("Susceptibility", "Partial pressure"):
        component += f" {axes['property'].casefold()}"
    elif "culture" in axes["method"]:
        component += " culture"
    elif _PATTERN.genome.search(component):
        component = _PATTERN.genome.sub("viral load" if "/" in axes["property"] else "PCR", component)
    quantity = axes | {"component": component, "specimen": system, "manner": axes["method"] + component}
    quantity |= {"pair": f"{axes['share']}|{component}", "whole": axes["share"][1:].removesuffix(".total")}
    names = [*_by_rule("closer", quantity), f"{system} {component}".strip()]
    if not system:
        names.append(f"Serum {component}")
    # A microbe is the same everywhere, and a panel mostly says itself of what it is.
    own = axes["panel"] and not system.endswith("fluid")
    if system.endswith(" blood") or own or component.endswith(("Antibody", "Antigen", "PCR", "toxin", "viral load")):
        names.append(component)
    if "actual" in axes["share"] or axes["system"] == "Platelet poor plasma":
        names.append(re.sub(r" (?:Antigen|activity)\b", "", component))
    names += [_PATTERN.strain.sub("", wording) for wording in names]
    names += [re.sub(r"\bvirus ", "", wording) for wording in names]
    return _Names(tuple(dict.fromkeys(names)), tuple(_by_rule("wider", quantity)))


def _by_rule(table: str, quantity: dict[str, str]) -> list[str]:
    """The names that the first fitting rule of a table has for a quantity."""
    for rule, wordings in _TABLE[table]:
        if all(re.search(pattern, quantity[axis]) for axis, pattern in rule.items()):
            return [wording.format(**quantity) for wording in wordings]
    return []


def _specimen(system: str) -> str:
    """The system as a clinician would name it; nothing for blood, whichever part of it."""
    if _PATTERN.blood.search(system):
        return f"{vessel[0]} blood" if (vessel := _PATTERN.vessel.search(system)) else ""
    return _TABLE["specimens"].get(system.casefold(), system)
