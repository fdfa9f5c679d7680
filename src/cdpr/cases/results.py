"""Writes and reads laboratory results as text, in the layout of the paper's sample record.

One analyte reads ``Label: Value: 18.5; Units: K/uL; Reference Range: 4.0--11.0; Flag: abnormal; Comments: ...``;
analytes of a panel follow one another, joined by ``"; "``. Fields that the source leaves empty are absent. Plain lists
as other hospitals print them, ``Serum sodium 128 mmol/L (135-145); ...``, are read too.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

_WRITTEN = ("Value", "Units", "Reference Range", "Flag", "Comments")  # fields of a result
# "Sodium: Value: 128", "Units: mmol/L"
_SEGMENT = re.compile(rf"^(?:(?P<label>.+?): )?(?P<field>Numeric Value|{'|'.join(_WRITTEN)}): (?P<text>.*)$")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_LIST_ITEM = re.compile(  # "Serum sodium 128 mmol/L (135-145)"
    r"(?P<label>\S.*?) (?P<value>[<>]?-?\d+(?:\.\d+)?) ?(?P<units>[^()]*?) ?"
    r"\((?P<low>\d+(?:\.\d+)?)-(?P<high>\d+(?:\.\d+)?)\)"
)
# "12.5", ">5.0 mg/dL", "15 x10^9/L" (a power that belongs to the unit), but no titre, ratio, range, fraction or power.
_QUANTITY = re.compile(
    r"\s*[<>≤≥~≈=]*\s*([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?:\s*[x×*·]\s*10\^?[\d⁴-⁹]+(?=\s*/))?[^\d:^+½⅓⅔¼¾⅛⁰¹²³⁴-⁹⁻×–-]*"
)
_NEGATIVE_WORDS = {"NEG", "NEG.", "NEGATIVE", "NONE"}


@dataclass(frozen=True)
class Analyte:
    """One measured quantity: ``value`` as printed, ``low`` and ``high`` the limits of its reference range; None where
    absent."""

    label: str
    value: str | None = None
    units: str | None = None
    low: float | None = None
    high: float | None = None
    flag: str | None = None
    comments: str | None = None

    @property
    def number(self) -> float | None:
        """The value as a number (``">5.0"`` gives 5.0), or without a value the first clause of the comment; None where
        there is none, and for what is no single one (``"1:160"``, ``"3-5"``, ``"10⁵"``, ``"2+"``)."""
        match = _QUANTITY.fullmatch(self.value or re.split(r"[.,;](?:\s|$)", self.comments or "")[0])
        return float(match[1]) if match else None

    @property
    def level(self) -> str | None:
        """``low`` or ``high`` for a number outside the reference range, ``normal`` for one inside and for a negative
        result, ``abnormal`` where only a flag says so; None where none of these applies."""
        number, is_bounded = self.number, (self.low, self.high) != (None, None)
        low, high = (-math.inf if self.low is None else self.low), (math.inf if self.high is None else self.high)
        if number is not None and not low <= number <= high:
            return "low" if number < low else "high"
        if self.flag:
            return "abnormal"
        is_within = number is not None and is_bounded
        return "normal" if is_within or (self.value or "").upper() in _NEGATIVE_WORDS else None

    @property
    def grade(self) -> int:
        """How far a number is beyond its reference range, on a logarithmic scale: 1 from the root of 2 (1.41) times the
        upper limit, 2 from twice, 4 from four times; likewise below the lower limit (2 from a half). 0 within the
        range, close to it, for numbers that are not above 0, and where number or limit is unknown."""
        number = self.number
        limit = self.high if self.level == "high" else self.low
        if number is None or self.level not in ("low", "high") or not limit or number <= 0:
            return 0
        # Two steps for each doubling.
        return int(2 * abs(math.log2(number / limit)))


def format_analytes(analytes: Iterable[Analyte]) -> str:
    """Write analytes as one text, ``Label: Value: 18.5; Units: K/uL; ...``; :func:`parse_analytes` is the inverse. A
    reference range is written only if it has both limits; a semicolon with a space behind it in a comment becomes a
    comma."""
    parts = []
    for analyte in analytes:
        bounded = analyte.low is not None and analyte.high is not None
        reference = f"{analyte.low}--{analyte.high}" if bounded else None
        comments = analyte.comments and analyte.comments.replace("; ", ", ")
        fields = dict(zip(_WRITTEN, (analyte.value, analyte.units, reference, analyte.flag, comments), strict=True))
        if text_of_fields := "; ".join(f"{name}: {text}" for name, text in fields.items() if text):
            parts.append(f"{analyte.label}: {text_of_fields}")
    return "; ".join(parts)


def parse_analytes(text: str) -> list[Analyte]:
    """Read the analytes in the text of a result, written as ``Label: Value: 18.5; Units: K/uL; ...`` or as a plain list
    with reference ranges in brackets. Returns an empty list for a text in neither layout (a report in words)."""
    analytes: list[dict] = []
    for segment in text.split("; "):
        match = _SEGMENT.match(segment)  # "Sodium: Value: 128", then "Units: mmol/L"
        if match is None:
            if not analytes:  # the text does not begin in this layout
                return _parse_list(text)
            continue  # not a field, but the rest of a field whose text has a semicolon
        if match["label"] is not None or not analytes:
            analytes.append({"label": match["label"] or ""})
        fields, name, field_text = analytes[-1], match["field"], match["text"].strip()
        low, _, high = field_text.partition("--")
        if name in ("Value", "Numeric Value"):  # of several values the first is kept
            fields.setdefault("value", field_text)
        elif name != "Reference Range":
            fields[name.lower()] = field_text
        elif _NUMBER.fullmatch(low) and _NUMBER.fullmatch(high):
            fields["low"], fields["high"] = float(low), float(high)
    return [Analyte(**fields) for fields in analytes]


def _parse_list(text: str) -> list[Analyte]:
    """Read the analytes in a list such as ``Serum sodium 128 mmol/L (135-145); ...``. Returns an empty list where any
    part has another form."""
    matches = [_LIST_ITEM.fullmatch(part.strip()) for part in text.rstrip(".").split(";")]
    parts = [match.groups() for match in matches if match] if all(matches) else []
    return [Analyte(label, value, units or None, float(low), float(high)) for label, value, units, low, high in parts]
