"""What may leave the machine: text of credentialed cases goes to no other one, unless an agreement is named for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    from ..settings.data import Governance

NO_TELEMETRY = {
    "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1", "RAY_USAGE_STATS_ENABLED": "0", "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}  # fmt: skip
"""Environment variables under which vLLM, Ray, Hugging Face's hub and MLflow report nothing to their makers."""
_UNIX = "unix:"


class GovernanceError(RuntimeError):
    """Text of credentialed cases was about to leave the machine without an agreement; nothing was sent."""


@dataclass(frozen=True)
class Disclosure:
    """Text of credentialed cases may go to ``host`` under ``agreement``."""

    agreement: str
    host: str

    def tags(self) -> dict[str, str]:
        """What ``run.json`` says of it."""
        return {"remote_agreement": self.agreement, "remote_host": self.host}


def disclosed(disclosures: Iterable[Disclosure | None]) -> dict[str, str]:
    """What ``run.json`` says of several models together; nothing where no credentialed text leaves the machine."""
    told = [disclosure for disclosure in disclosures if disclosure]
    if not told:
        return {}
    return Disclosure(told[0].agreement, ", ".join(dict.fromkeys(each.host for each in told))).tags()


def unix_socket(endpoint: str) -> str | None:
    """Path of the socket in ``unix:/path`` (also ``unix:///path``); None for any other endpoint."""
    path = endpoint.removeprefix(_UNIX).removeprefix("//")
    return path if endpoint.startswith(_UNIX) and path.startswith("/") else None


def host_of(endpoint: str) -> str:
    """Host, and port if one is given, that a request to ``endpoint`` goes to, read by the parser that sends it;
    user names, keys and paths are left out. Raises GovernanceError for what is no usable address."""
    if unix_socket(endpoint) is not None:
        return "unix socket"
    try:
        url = httpx2.URL(endpoint)
    except httpx2.InvalidURL:  # its message would quote the address, and keys that stand in it
        raise GovernanceError("a model's address is no URL; give it as http://HOST:PORT/v1 or unix:/PATH") from None
    if url.scheme not in ("http", "https") or not url.host or url.userinfo:
        raise GovernanceError(
            f"a model's address names {'a user' if url.userinfo else 'no host'}; give it as http://HOST:PORT/v1, "
            "https://HOST/v1 or unix:/PATH, and a key in CDPR_API_KEY"
        )
    return url.netloc.decode("ascii")


def is_local(endpoint: str) -> bool:
    """Whether a request stays on this machine: a Unix socket, the name ``localhost``, or a loopback address written in
    full. Anything else is another machine: the local network too, and every other spelling of a loopback address,
    because resolvers do not agree about those. Raises GovernanceError as :func:`host_of`.

    It holds only for a client that uses no proxy and follows no redirect.
    """
    if host_of(endpoint) == "unix socket":
        return True
    host = httpx2.URL(endpoint).host
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback and getattr(address, "ipv4_mapped", None) is None


def allow(endpoint: str, credentialed: bool, governance: Governance, dataset: str = "") -> Disclosure | None:
    """Ask before text leaves for ``endpoint``: every client calls this for every request.

    None where there is nothing to record: the cases are open, or the endpoint is local. A :class:`Disclosure` where
    credentialed text goes to another machine under the agreement that ``governance`` names. Raises
    :class:`GovernanceError` where it must not go.
    """
    if is_local(endpoint) or not credentialed:
        return None
    host, agreement = host_of(endpoint), (governance.remote_agreement or "").strip()
    if not agreement:
        cases = f"credentialed cases (data.{dataset})" if dataset else "credentialed cases"
        raise GovernanceError(
            f"text of {cases} must not be sent to {host}, which is another machine; use a model on this one (a folder, "
            "or a server at 127.0.0.1), or name the agreement that allows it in governance.remote_agreement"
        )
    return Disclosure(agreement, host)
