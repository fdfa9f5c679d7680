"""Standard names of laboratory tests (LOINC) in a clinician's words.

Their grammar is ``component [property] in system by method`` for a quantity, ``component/100 cells in system`` for a
share, and ``component panel - system``. Property and method rarely tell which examination is meant, and the system does
so only where it is not blood.
"""

import functools
import re

from ..files import parse_yaml, shipped_text
from .patterns import compile_patterns, compile_rewriting, fill, rewrite

_TABLE = fill(parse_yaml(shipped_text(__package__, "data", "standard_names.yaml")))
_NAMES = [re.compile(name) for name in _TABLE["names"]]
_PATTERN, _WORDS = compile_patterns(_TABLE["patterns"]), compile_rewriting(_TABLE["words"])


def clinical_names(name: str) -> tuple[str, ...]:
    """What a clinician may call the examination that a standard name means, the closest first; none for any other
    name."""
    return _names(name)[0]


def reporting_names(name: str) -> tuple[str, ...]:
    """Examinations that report what a standard name means among other quantities, the closest first."""
    return _names(name)[1]


@functools.lru_cache(maxsize=1 << 15)
def _names(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Clinical names, and names of what reports the quantity, of a standard name; both empty for any other name."""
    plain = _PATTERN.noise.sub("", name).strip()
    if culture := _PATTERN.identified.fullmatch(plain):
        return _culture_names(culture), ()
    match = next(filter(None, (pattern.fullmatch(plain) for pattern in _NAMES)), None)
    if match is None:
        return (), ()
    axes = dict.fromkeys(("property", "share", "panel", "system", "method"), "") | match.groupdict("")
    axes["challenge"] = name.partition(" post ")[2]
    axes["specimen"] = _specimen(axes["system"])
    axes["component"] = component = _component(axes)
    axes["manner"] = axes["method"] + component
    axes["pair"], axes["whole"] = f"{axes['share']}|{component}", axes["share"][1:].removesuffix(".total")
    return _own_names(axes), tuple(_by_rule("wider", axes))


def _culture_names(culture: re.Match[str]) -> tuple[str, ...]:
    """The names of a culture: that of its specimen, then that of its kind (anaerobic, fungal, ...) alone."""
    is_anaerobic = "anaerob" in (culture["method"] or "").casefold()
    kind = "Anaerobic " if is_anaerobic else _TABLE["cultures"].get(culture["what"].casefold(), "")
    return f"{_specimen(culture['system']) or 'Blood'} {kind}culture", f"{kind or 'Bacterial '}culture"


def _component(axes: dict[str, str]) -> str:
    """What is measured, in a clinician's words, with what property or method add: "HIV 1 RNA" counted per volume is
    "HIV 1 viral load"."""
    component = rewrite(axes["component"], _WORDS)
    if axes["panel"] and not _PATTERN.genome.search(component):
        return f"{_PATTERN.count.sub('', component)} panel"
    if axes["property"] in ("Susceptibility", "Partial pressure"):
        return f"{component} {axes['property'].casefold()}"
    if "culture" in axes["method"]:
        return f"{component} culture"
    return _PATTERN.genome.sub("viral load" if "/" in axes["property"] else "PCR", component)


def _own_names(axes: dict[str, str]) -> tuple[str, ...]:
    """The clinical names of a quantity, the closest first: by rule, with its specimen, then with fewer words."""
    component, specimen = axes["component"], axes["specimen"]
    names = [*_by_rule("closer", axes), f"{specimen} {component}".strip()]
    if not specimen:
        names.append(f"Serum {component}")
    # A microbe is the same everywhere, and a panel mostly says itself of what it is.
    is_panel = axes["panel"] and not specimen.endswith("fluid")
    of_microbe = component.endswith(("Antibody", "Antigen", "PCR", "toxin", "viral load"))
    if specimen.endswith(" blood") or is_panel or of_microbe:
        names.append(component)
    if "actual" in axes["share"] or axes["system"] == "Platelet poor plasma":
        names.append(re.sub(r" (?:Antigen|activity)\b", "", component))
    names += [_PATTERN.strain.sub("", name) for name in names]
    names += [re.sub(r"\bvirus ", "", name) for name in names]
    return tuple(dict.fromkeys(names))


def _by_rule(table: str, axes: dict[str, str]) -> list[str]:
    """The names in the first rule of a table (``closer``, ``wider``) all of whose patterns are found in their axes."""
    for patterns, names in _TABLE[table]:
        if all(re.search(pattern, axes[axis]) for axis, pattern in patterns.items()):
            return [name.format(**axes) for name in names]
    return []


def _specimen(system: str) -> str:
    """A standard name's system as a clinician names the specimen: empty for blood, unless it says of which vessel."""
    if _PATTERN.blood.search(system):
        return f"{vessel[0]} blood" if (vessel := _PATTERN.vessel.search(system)) else ""
    return _TABLE["specimens"].get(system.casefold(), system)
