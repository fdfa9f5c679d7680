"""An input that is damaged: how it is written, damaged and read, and what comes of reading it."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mutations import OF_KIND, archive

_SLIP = 8  # letters that damage to single bytes may cost


@dataclass(frozen=True)
class Outcome:
    """``amounts`` fall when data are lost; ``text`` is everything that the reader reports. ``letters`` counts those of
    the records: they stay when two examinations become one, or one moves into the history."""

    amounts: tuple[int, ...]
    text: str
    letters: int = 0

    def lacks(self, before: "Outcome") -> bool:
        """Whether amounts are smaller than before without any message about it."""
        fewer = any(now < then for now, then in zip(self.amounts, before.amounts, strict=True))
        return fewer and self.text == before.text and (self.letters < before.letters - _SLIP or not before.letters)


@dataclass(frozen=True)
class Target:
    """``write`` puts the whole input into a folder; ``read`` reads it, or raises one of :data:`REFUSALS`."""

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], Outcome]
    kind: str = "csv"

    def damage(self, rng: random.Random, folder: Path) -> list[str]:
        """Up to three mutations of files in the folder."""
        names = []
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            if not files:
                break
            path = rng.choice(files)
            kinds = OF_KIND[self.kind] + ([archive] if path.suffix == ".gz" else [])
            try:
                names.append(rng.choice(kinds)(rng, path))
            except Exception as error:  # of a mutation on what an earlier one has damaged
                names.append(f"(none: {type(error).__name__})")
        return names
