"""Translates the standard names of laboratory tests (LOINC) to the words of a clinician.

LOINC writes a quantity as ``component [property] in system by method``, a share as ``component/100 cells in system``,
and a panel as ``component panel - system``. Property and method rarely decide which examination is meant. The system
(the specimen) does so only where it is not blood.
"""

import functools
import re
from typing import NamedTuple

from ..files import parse_yaml, shipped_text
from .patterns import Patterns, compiled, fill, rewrite

_TABLE = fill(parse_yaml(shipped_text(__package__, "data", "standard_names.yaml")))
_PATTERN, _WORDS = Patterns(_TABLE["patterns"]), _TABLE["words"].items()


class Translation(NamedTuple):
    """Two lists of names for one LOINC name, the closest first: ``clinical`` has what clinicians call the test,
    ``reporting`` the examinations (a panel, say) whose result includes its quantity. Both are empty for a name that is
    not in LOINC's form."""

    clinical: tuple[str, ...] = ()
    reporting: tuple[str, ...] = ()


@functools.lru_cache(maxsize=1 << 15)
def translate(name: str) -> Translation:
    """Translate a LOINC name to the names that clinicians use for the test, and to names of examinations that report
    it. Both are empty for any other name."""
    plain = _PATTERN.noise.sub("", name).strip()
    # A culture: "Bacteria identified in Blood by Culture".
    if culture := _PATTERN.identified.fullmatch(plain):
        kind = _TABLE["cultures"].get(culture["what"].casefold(), "")
        kind = "Anaerobic " if "anaerob" in (culture["method"] or "").casefold() else kind
        specimen = _name_specimen(culture["system"]) or "Blood"
        return Translation((f"{specimen} {kind}culture", f"{kind or 'Bacterial '}culture"))
    # Divide the name into its axes, by the first form of names that fits.
    matches = (compiled(form).fullmatch(plain) for form in _TABLE["names"])
    match = next(filter(None, matches), None)
    if match is None:
        return Translation()
    axes = dict.fromkeys(("property", "share", "panel", "system", "method"), "") | match.groupdict("")
    _, _, axes["challenge"] = name.partition(" post ")  # what was given before the test: "glucose"
    # Write the component in a clinician's words.
    component, system = rewrite(axes["component"], _WORDS), _name_specimen(axes["system"])
    if axes["panel"] and not _PATTERN.genome.search(component):
        component = f"{_PATTERN.count.sub('', component)} panel"
    elif axes["property"] in ("Susceptibility", "Partial pressure"):
        component += f" {axes['property'].casefold()}"
    elif "culture" in axes["method"]:
        component += " culture"
    elif _PATTERN.genome.search(component):
        component = _PATTERN.genome.sub("viral load" if "/" in axes["property"] else "PCR", component)
    # More parts, for the rules of the table: ``manner`` and ``pair`` join two axes; ``whole`` is what a share is of,
    # such as "Hemoglobin" for "/Hemoglobin.total".
    quantity = axes | {"component": component, "specimen": system, "manner": axes["method"] + component}
    quantity |= {"pair": f"{axes['share']}|{component}", "whole": axes["share"][1:].removesuffix(".total")}
    # Names by these rules, then "specimen component" and variants of it.
    plainest = [f"{system} {component}"] if system else [component, f"Serum {component}"]
    names = [*_by_rule("closer", quantity), *plainest]
    # Without the specimen: a panel mostly has it in its name, and what is found of a microbe is the same everywhere.
    is_panel = axes["panel"] and not system.endswith("fluid")
    of_microbe = component.endswith(("Antibody", "Antigen", "PCR", "toxin", "viral load"))
    if system.endswith(" blood") or is_panel or of_microbe:
        names.append(component)
    # A clotting factor also by its name alone.
    if "actual" in axes["share"] or axes["system"] == "Platelet poor plasma":
        names.append(re.sub(r" (?:Antigen|activity)\b", "", component))
    names += [_PATTERN.strain.sub("", known) for known in names]  # without the strain of a microbe
    names += [re.sub(r"\bvirus ", "", known) for known in names]
    return Translation(tuple(dict.fromkeys(names)), tuple(_by_rule("wider", quantity)))


def _by_rule(table: str, quantity: dict[str, str]) -> list[str]:
    """Return the names that the first matching rule of a table gives for a quantity; empty where no rule matches.
    ``quantity`` has the parts of a LOINC name (``component``, ``property``, ...). A rule has regular expressions for
    some of these parts, and the names."""
    for rule, wordings in _TABLE[table]:
        if all(re.search(pattern, quantity[axis]) for axis, pattern in rule.items()):
            return [wording.format(**quantity) for wording in wordings]
    return []


def _name_specimen(system: str) -> str:
    """Return the name that a clinician gives the specimen ``system`` of a LOINC name. For blood it is empty, unless the
    vessel is stated: ``Arterial blood``."""
    if _PATTERN.blood.search(system):
        return f"{vessel[0]} blood" if (vessel := _PATTERN.vessel.search(system)) else ""
    return _TABLE["specimens"].get(system.casefold(), system)
