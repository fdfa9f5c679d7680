"""Chinese names of examinations in English words, which one grammar then reads (``data/chinese.yaml``)."""

import re

from ..files import parse_yaml, shipped_text


def _key(word: str) -> str:
    """A word without hyphens, spaces and capitals: its key in :data:`_ENGLISH`."""
    return re.sub(r"[-\s]", "", word).casefold()


_ENGLISH = {
    _key(chinese): english
    for entries in parse_yaml(shipped_text(__package__, "data", "chinese.yaml")).values()
    for english, spellings in entries.items()
    for chinese in spellings.split()
}
_HAN = "[\u3400-\u9fff]"
_BORDER = re.compile(rf"(?<={_HAN})(?=[A-Za-z])|(?<=[A-Za-z])(?={_HAN})")
# "D-二聚体" and "C 反应蛋白" are the words without what stands between the two scripts.
_WORD = re.compile(
    "|".join(r"[-\s]*".join(_BORDER.split(word)) for word in sorted(_ENGLISH, key=len, reverse=True)), re.IGNORECASE
)


def in_english(name: str) -> str:
    """A name with its Chinese words in English, the longest first; what no entry knows stays as it is."""
    if not re.search(_HAN, name):
        return name
    english = _WORD.sub(lambda word: f" {_ENGLISH[_key(word[0])]} ", name)
    return " ".join(_BORDER.sub(" ", english).split())
