"""Translates the Chinese words of an examination's name to English, by the table ``data/chinese.yaml``, so that all
other modules need to read only English names."""

import re

from ..files import parse_yaml, shipped_text


def _make_key(word: str) -> str:
    """Return the key of a word in :data:`_ENGLISH`: the word in lower case, without hyphens and spaces."""
    return re.sub(r"[-\s]", "", word).casefold()


# The English of each Chinese word, by its key. The table has groups of English words, each with its Chinese spellings.
_ENGLISH = {
    _make_key(chinese): english
    for group in parse_yaml(shipped_text(__package__, "data", "chinese.yaml")).values()
    for english, spellings in group.items()
    for chinese in spellings.split()
}
_HAN = "[\u3400-\u9fff]"  # a Chinese character
_BORDER = re.compile(rf"(?<={_HAN})(?=[A-Za-z])|(?<=[A-Za-z])(?={_HAN})")  # where it meets a Latin letter
# At a border a name may have hyphens or spaces that the table lacks: "D-二聚体", "C 反应蛋白".
_LONGEST_FIRST = sorted(_ENGLISH, key=len, reverse=True)
_WORD = re.compile("|".join(r"[-\s]*".join(_BORDER.split(word)) for word in _LONGEST_FIRST), re.IGNORECASE)


def in_english(name: str) -> str:
    """Translate the Chinese words in the name of an examination to English, the longest known word first. Text that the
    table does not know is left as it is; a name without Chinese characters is returned unchanged."""
    if not re.search(_HAN, name):
        return name
    english = _WORD.sub(lambda match: f" {_ENGLISH[_make_key(match[0])]} ", name)
    return " ".join(_BORDER.sub(" ", english).split())
