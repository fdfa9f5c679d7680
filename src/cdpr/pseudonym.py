"""Names for credentialed values, which tell them apart and do not tell what they are.

A plain digest would: who tries all diagnoses, or all numbers of notes, finds the one behind it. These are keyed with a
secret of the installation, made when it is first needed and readable by its owner alone. Whoever has no secret learns
nothing but which values are equal.
"""

import hmac
import os
import secrets
from functools import cache
from pathlib import Path

SECRET = "pseudonym.key"  # below `paths.state`
_BYTES = 32


class SecretError(ValueError):
    """The secret of the installation is damaged; the message says what to do."""


def pseudonym(state: str | Path, text: str) -> str:
    """Sixteen hexadecimal digits for a text: HMAC-SHA-256 with the secret of the installation whose work lies under
    ``state``. Raises OSError where the secret cannot be read or made, SecretError where the file holds none."""
    return hmac.new(_secret(Path(state).resolve()), text.encode(), "sha256").hexdigest()[:16]


@cache
def _secret(state: Path) -> bytes:
    path = state / SECRET
    if not path.exists():
        _make(path)
    text = path.read_text(encoding="ascii", errors="replace").strip()
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if len(secret) != _BYTES:
        raise SecretError(f"{path}: not the secret that was written; put it back, or remove it and every evaluation of "
                          "credentialed cases, which are named by it")  # fmt: skip
    return secret


def _make(path: Path) -> None:
    """Write a new secret whole, unless another job was faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.partial")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(secrets.token_hex(_BYTES) + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(partial, path)  # unlike a rename it never replaces
    except FileExistsError:
        pass
    finally:
        partial.unlink()
