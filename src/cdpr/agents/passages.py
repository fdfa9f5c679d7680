"""Passages of the user's own texts, found by BM25 (package ``bm25s``, optional)."""

from __future__ import annotations

import re
from pathlib import Path

from ..settings import SettingsError


class Passages:
    """The paragraphs of all ``.txt`` files of a folder (UTF-8), in the order of their names. Raises SettingsError where
    the package or the texts are missing."""

    def __init__(self, folder: Path):
        try:
            import bm25s
        except ModuleNotFoundError:
            raise SettingsError(
                "frameworks.tree_of_reasoning.retriever: bm25 needs the package `bm25s`: pip install bm25s"
            ) from None
        files = sorted(folder.rglob("*.txt"))
        parts = (part for file in files for part in re.split(r"\n\s*\n", file.read_text(encoding="utf-8")))
        self.texts = [" ".join(part.split()) for part in parts if part.strip()]
        if not self.texts:
            raise SettingsError(f"frameworks.tree_of_reasoning: no text in {folder}: put .txt files there")
        self._bm25s, self._index = bm25s, bm25s.BM25(backend="numpy")
        self._index.index(self._words(self.texts), show_progress=False)

    def find(self, query: str, most: int) -> tuple[str, ...]:
        """The passages that match best, the best first; none that shares no word with the query."""
        count = min(most, len(self.texts))
        found, scores = self._index.retrieve(self._words([query]), k=count, show_progress=False)
        return tuple(self.texts[n] for n, score in zip(found[0], scores[0], strict=True) if score > 0)

    def _words(self, texts: list[str]):
        return self._bm25s.tokenize(texts, stopwords="en", show_progress=False)
