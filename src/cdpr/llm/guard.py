"""Text of credentialed cases goes to no other machine, unless the settings name an agreement that allows it."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ..settings.datasets import Governance

if TYPE_CHECKING:
    import httpx2

NO_TELEMETRY = {
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""Environment variables that switch off telemetry of vLLM, Ray, Hugging Face's hub and MLflow."""


class GovernanceError(RuntimeError):
    """Text of credentialed cases would have left the machine without an agreement; nothing was sent."""


@dataclass(frozen=True)
class Disclosure:
    """Text of credentialed cases may go to ``host`` under ``agreement``."""

    agreement: str
    host: str


def disclosure_tags(disclosures: Iterable[Disclosure | None]) -> dict[str, str]:
    """Make the tags of ``run.json`` for these disclosures: the agreement, and the hosts that get credentialed text.
    Returns an empty dictionary where all are None, because all text stays on the machine."""
    remote = [disclosure for disclosure in disclosures if disclosure]
    if not remote:
        return {}
    hosts = dict.fromkeys(disclosure.host for disclosure in remote)  # without repetitions, in order
    return {"remote_agreement": remote[0].agreement, "remote_host": ", ".join(hosts)}


def parse_unix_socket(endpoint: str) -> str | None:
    """Read the path of the socket in an endpoint ``unix:/path`` or ``unix:///path``; None for any other endpoint."""
    path = endpoint.removeprefix("unix:").removeprefix("//")
    return path if endpoint.startswith("unix:") and path.startswith("/") else None


def host_of(endpoint: str) -> str:
    """The host of an endpoint, with its port if it has one: ``api.example.org:8443``, or ``unix socket``. This text is
    safe to show, since it has no user name, key or path. Raises GovernanceError for an unusable address."""
    return "unix socket" if parse_unix_socket(endpoint) is not None else _parse_url(endpoint).netloc.decode("ascii")


def _parse_url(endpoint: str) -> "httpx2.URL":
    """Parse an address by the library that sends the requests. Raises GovernanceError for an unusable address; the
    message does not quote it, since it may hold a key."""
    import httpx2  # here, for it would slow every reading of the workflow

    try:
        url = httpx2.URL(endpoint)
    except httpx2.InvalidURL:  # its message would quote the address with its keys
        raise GovernanceError("a model's address is no URL; give it as http://HOST:PORT/v1 or unix:/PATH") from None
    if url.scheme not in ("http", "https") or not url.host or url.userinfo:
        raise GovernanceError(
            f"a model's address names {'a user' if url.userinfo else 'no host'}; give it as http://HOST:PORT/v1, "
            "https://HOST/v1 or unix:/PATH, and a key in CDPR_API_KEY"
        )
    return url


def is_local(endpoint: str) -> bool:
    """Whether requests to an endpoint stay on this machine: a Unix socket, ``localhost``, or a loopback address in its
    usual spelling. All else counts as another machine: the local network, and other spellings of a loopback address,
    about which resolvers disagree. Raises GovernanceError as :func:`host_of`.

    The client must use no proxy and follow no redirect.
    """
    if parse_unix_socket(endpoint) is not None:
        return True
    host = _parse_url(endpoint).host
    with contextlib.suppress(ValueError):
        address = ip_address(host)
        return address.is_loopback and getattr(address, "ipv4_mapped", None) is None
    return host == "localhost"


def check_disclosure(endpoint: str, credentialed: bool, governance: Governance, dataset: str = "") -> Disclosure | None:
    """Check that text may be sent to ``endpoint``; every client calls this before every request. ``credentialed``: the
    text is under a data use agreement.

    Returns None for open cases and local endpoints, a :class:`Disclosure` for credentialed text that goes to another
    machine under the agreement of ``governance``. Raises :class:`GovernanceError`, naming ``dataset``, where there is
    no agreement.
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
