"""The results of a case while an importer collects them."""

from ..cases import Analyte, format_analytes
from .summary import one_line


class Workup:
    """Measured quantities and texts by examination. Of a quantity that comes again the first counts; the texts of an
    examination follow its quantities, each once."""

    def __init__(self) -> None:
        self._analytes: dict[str, dict[str, Analyte]] = {}
        self._texts: dict[str, dict[str, None]] = {}

    def add(self, key: str, result: Analyte | str) -> bool:
        """Take up a result of an examination; whether it is a new one."""
        analytes, texts = self._analytes.setdefault(key, {}), self._texts.setdefault(key, {})
        if isinstance(result, Analyte):
            return analytes.setdefault(result.label, result) is result
        is_new = result not in texts
        texts[result] = None
        return is_new

    def results(self) -> dict[str, str]:
        """One text of each examination that has any, in the order in which they came."""
        texts = {
            key: "; ".join(filter(None, [format_analytes(analytes.values()), *self._texts[key]]))
            for key, analytes in self._analytes.items()
        }
        return {key: text for key, text in texts.items() if text}


def result_part(text: str) -> str:
    """A text that keeps to its place in the layout of a laboratory result, where "; " ends it."""
    return one_line(text).replace("; ", ", ")
