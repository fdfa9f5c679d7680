"""Seeds that depend on what is drawn, not on when: any order of evaluation gives the same draws."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from the representation of its parts (numbers, strings, tuples of them)."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1
