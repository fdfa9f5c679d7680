"""Pseudonyms of credentialed values: equal values have equal pseudonyms, which reveal nothing else.

A plain digest would not hide a value, since all diagnoses or numbers of notes could be tried. So the digest depends on
a secret key of the installation, which is made on first use and readable only by its owner.
"""

import contextlib
import hmac
import os
import secrets
from functools import cache
from pathlib import Path

SECRET = "pseudonym.key"  # below `paths.state`
_BYTES = 32  # of the secret key, as long as a digest of SHA-256


class SecretError(ValueError):
    """The secret key of the installation is damaged; the message says what to do."""


def pseudonym(state: str | Path, text: str) -> str:
    """Compute the pseudonym of a text: sixteen hexadecimal digits of HMAC-SHA-256 with the secret key in the folder
    ``state``. The key is made on first use.

    Raises OSError where the file of the key cannot be read or written, SecretError where it is damaged.
    """
    return hmac.new(_read_secret(Path(state).resolve()), text.encode(), "sha256").hexdigest()[:16]


@cache
def _read_secret(state: Path) -> bytes:
    """Read the secret key in the folder ``state``; makes one where there is none. Raises SecretError for a damaged
    file."""
    path = state / SECRET
    if not path.exists():
        _make_secret(path)
    try:
        secret = bytes.fromhex(path.read_text(encoding="ascii", errors="replace").strip())
    except ValueError:
        secret = b""
    if len(secret) != _BYTES:
        raise SecretError(f"{path}: the secret is damaged; restore the file, or remove it and every evaluation of "
                          "credentialed cases, whose pseudonyms depend on it")  # fmt: skip
    return secret


def _make_secret(path: Path) -> None:
    """Write a new secret key to the file ``path``, which only its owner can read. Where another job has just written
    one, that one stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.partial")
    with open(partial, "x", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(secrets.token_hex(_BYTES) + "\n")
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileExistsError):
        os.link(partial, path)  # unlike a rename it never replaces a file
    partial.unlink()
