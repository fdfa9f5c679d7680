"""Standard names of laboratory tests (LOINC) in a clinician's words.

Their grammar is ``component [property] in system by method`` for a quantity, ``component/100 cells in system`` for a
share, and ``component panel - system``. Property and method rarely tell which examination is meant, and the system does
so only where it is not blood.
"""

import functools
import re

_PROPERTY = (
    r"\s*\[(?P<property>[^\]]*/[^\]]*|Presence|[Tt]ype|Identifier|Titer|Interpretation|Appearance|Color|Time|pH"
    r"|[\w .#]*(?:[Rr]atio|[Ff]raction|volume|mass|Osmolality|[Pp]ressure|[Gg]ravity|[Aa]ctivity|units))\]"
)
_SHARE = r"(?P<share>/(?:100|1\.73)\b[^\[]*?|/[\w ]+\.total|\s+actual/normal)(?:\s*\[[^\]]*\])?"
_PANEL = r"(?P<panel>\s+(?:19|20)\d\d\s+panel|\s+panel(?=\s+-\s))"
_METHOD = r"(?:\s+by\s+(?P<method>.+))?"
_NAMES = (
    re.compile(
        rf"(?P<component>.+?)(?:{_PROPERTY}|{_SHARE}|{_PANEL})(?:\s+(?:in|of|from|for|-)\s+(?P<system>.+?))?{_METHOD}"
    ),
    # Without a property the case of letters tells it from a sentence.
    re.compile(
        r"(?P<component>.+?)\s+(?:in|of|for)\s+"
        rf"(?P<system>(?:Serum|Plasma|Platelet poor plasma|Blood|Urine)(?:,? (?:or )?(?:Plasma|Blood))*){_METHOD}"
    ),
    re.compile(r"(?P<component>.+?)\s+by\s+(?P<method>[A-Z].*(?:assay|count|method|calculation|strip))"),
)
_IDENTIFIED = re.compile(
    r"(?P<what>\w+)(?: sp)? identified(?:\s*\[[^\]]*\])? in (?P<system>.+?)(?: by (?P<method>.*)culture)?",
    re.IGNORECASE,
)
_CULTURES = {"fungus": "Fungal ", "yeast": "Fungal ", "virus": "Viral ", "mycobacterium": "Acid-fast "}
# Times and challenges, a second name, units.
_NOISE = re.compile(r"\s*--.*|\^.*|\s*\([^()]*\)|\b(?:FEU|DDU)\b")
# How the parts of a panel are counted.
_COUNTED = re.compile(r"\b(?:W|Auto|Automated|Manual|complete|macro|W Reflex.*)\b")
_BLOOD = re.compile(r"\b(?:serum|plasma|blood)\b", re.IGNORECASE)
_VESSEL = re.compile(r"\b(?:arterial|venous|cord)\b", re.IGNORECASE)
_SPECIMENS = {"cerebral spinal fluid": "CSF", "urine sediment": "Urine", "24 hour urine": "Urine", "specimen": ""}
_GENOME = re.compile(r"\b(?:r?RNA|DNA|genes?)(?!.*\bAntibody)\b")
_WORDS = {re.compile(r"\bAb\b"): "Antibody", re.compile(r"\bAg\b"): "Antigen", re.compile(r"(?<=\w)\.(?=\w)"): " "}


@functools.lru_cache(maxsize=1 << 15)
def clinical_names(name: str) -> tuple[str, ...]:
    """What a clinician may call the examination that a standard name means, the closest first; none for any other
    name."""
    plain = _NOISE.sub("", name).strip()
    if culture := _IDENTIFIED.fullmatch(plain):
        kind = _CULTURES.get(culture["what"].casefold(), "")
        kind = "Anaerobic " if "anaerob" in (culture["method"] or "").casefold() else kind
        return f"{_specimen(culture['system']) or 'Blood'} {kind}culture", f"{kind or 'Bacterial '}culture"
    match = next(filter(None, (pattern.fullmatch(plain) for pattern in _NAMES)), None)
    if match is None:
        return ()
    axes = {"property": "", "share": "", "panel": "", "system": "", "method": ""}
    axes |= {part: text for part, text in match.groupdict().items() if text}
    component, system = axes["component"], _specimen(axes["system"])
    for short, long in _WORDS.items():
        component = short.sub(long, component)
    if axes["panel"] and not _GENOME.search(component):
        component = f"{_COUNTED.sub('', component)} panel"
    elif axes["property"] == "Partial pressure":
        component += " partial pressure"
    elif "culture" in axes["method"]:
        component += " culture"
    elif _GENOME.search(component):
        component = _GENOME.sub("viral load" if "/" in axes["property"] else "PCR", component)
    names = [f"{system} {component}".strip()]
    if axes["method"].endswith(("stain", "preparation")):
        names.insert(0, axes["method"])
    if system == "Urine" and axes["property"].startswith("Mass/") and axes["method"] != "Test strip":
        names.insert(0, f"Urine total {component}")
    if not system:
        names.append(f"Serum {component}")
    # A microbe is the same everywhere, and a panel mostly says itself of what it is.
    if system.endswith(" blood") or axes["panel"] or component.endswith(("Antigen", "PCR", "viral load")):
        names.append(component)
    names += [re.sub(r"\bvirus ", "", wording) for wording in names]
    return tuple(dict.fromkeys((*names, *_wider(component, system, axes))))


def _wider(component: str, system: str, axes: dict[str, str]) -> list[str]:
    """The examination that reports any quantity of this kind."""
    if re.search(r"\w+ IgE\b", component):
        return ["Specific IgE"]
    if re.match(r"CD\d", component) or re.match(r"/100 (?!leukocytes|erythrocytes)", axes["share"]):
        return ["Immunophenotyping"]
    counted = axes["property"] == "#/volume" and not component.endswith("viral load")
    if "leukocytes" in axes["share"] or (counted and system.endswith(("fluid", "CSF"))):
        return [f"{system} cell count" if system else "WBC differential"]
    if "sediment" in axes["system"] and "culture" not in axes["method"]:
        return ["Urine microscopy"]
    if axes["method"] == "Screen method":  # of drugs
        return ["Toxicology screen"]
    if axes["method"] == "Light microscopy" and not system:
        return ["Peripheral blood smear"]
    return []


def _specimen(system: str) -> str:
    """The system as a clinician would name it; nothing for blood, whichever part of it."""
    if _BLOOD.search(system):
        return f"{vessel[0]} blood" if (vessel := _VESSEL.search(system)) else ""
    return _SPECIMENS.get(system.casefold(), system)
