"""Chinese names of examinations in English words, which one grammar then reads (``data/chinese.yaml``)."""

import functools
import re

from ..files import parse_yaml, shipped_text

_ENGLISH = {
    chinese.casefold(): english
    for entries in parse_yaml(shipped_text(__package__, "data", "chinese.yaml")).values()
    for english, spellings in entries.items()
    for chinese in spellings.split()
}
_WORD = re.compile("|".join(map(re.escape, sorted(_ENGLISH, key=len, reverse=True))), re.IGNORECASE)
_HAN = "[\u3400-\u9fff]"
_BETWEEN = re.compile(rf"(?<={_HAN})[-\s]+(?=[A-Za-z])|(?<=[A-Za-z])[-\s]+(?={_HAN})")


@functools.lru_cache(maxsize=1 << 14)
def in_english(name: str) -> str:
    """A name with its Chinese words in English, the longest first; what no entry knows stays as it is."""
    if not re.search(_HAN, name):
        return name
    name = _BETWEEN.sub("", name)
    return " ".join(_WORD.sub(lambda word: f" {_ENGLISH[word[0].casefold()]} ", name).split())
