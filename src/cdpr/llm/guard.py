"""The check before every request to a model: text of credentialed cases, which a data use agreement protects, goes to
no other machine unless the settings name an agreement that allows it."""

import contextlib
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ..settings import Governance

if TYPE_CHECKING:
    import httpx2


class GovernanceError(RuntimeError):
    """Text of credentialed cases would have left the machine without an agreement that allows it, or the address of the
    model is unusable. Nothing was sent."""


def parse_unix_socket(endpoint: str) -> str | None:
    """Read the path of the Unix socket in an endpoint ``unix:/path`` or ``unix:///path``; None for any other
    endpoint."""
    path = endpoint.removeprefix("unix:").removeprefix("//")
    return path if endpoint.startswith("unix:") and path.startswith("/") else None


def host_of(endpoint: str) -> str:
    """The host of an endpoint, with its port if it has one: ``api.example.org:8443``, or ``unix socket``. It is safe to
    print, since it holds no user name, key or path. Raises GovernanceError for an unusable address."""
    return "unix socket" if parse_unix_socket(endpoint) is not None else _parse_url(endpoint).netloc.decode("ascii")


def _parse_url(endpoint: str) -> "httpx2.URL":
    """Parse the address of a model with the library that sends the requests, so that the check sees the same host.
    Raises GovernanceError for an address without a host, with a user name, or of another scheme than HTTP; the message
    does not quote it, since it may hold a key."""
    import httpx2  # here, because the import would slow the start of every command

    try:
        url = httpx2.URL(endpoint)
    except httpx2.InvalidURL:  # its message would quote the address with its keys
        raise GovernanceError("a model's address is no URL; give it as http://HOST:PORT/v1 or unix:/PATH") from None
    if url.scheme not in ("http", "https") or not url.host or url.userinfo:
        problem = f"a model's address names {'a user' if url.userinfo else 'no host'}"
        remedy = "give it as http://HOST:PORT/v1, https://HOST/v1 or unix:/PATH, and a key in CDPR_API_KEY"
        raise GovernanceError(f"{problem}; {remedy}")
    return url


def is_local(endpoint: str) -> bool:
    """Whether requests to an endpoint stay on this machine: it is a Unix socket, ``localhost``, or a loopback address
    in its usual spelling such as 127.0.0.1. All else counts as another machine: the local network, and unusual
    spellings of a loopback address, which resolvers read differently. Raises GovernanceError for an unusable address.

    The answer holds only for a client that uses no proxy and follows no redirect.
    """
    if parse_unix_socket(endpoint) is not None:
        return True
    host = _parse_url(endpoint).host
    with contextlib.suppress(ValueError):
        address = ip_address(host)
        # ::ffff:127.0.0.1, an IPv4 address written as IPv6, is an unusual spelling, so it counts as another machine.
        return address.is_loopback and getattr(address, "ipv4_mapped", None) is None
    return host == "localhost"


def check_disclosure(endpoint: str, credentialed: bool, governance: Governance, dataset: str = "") -> str | None:
    """Check that text is allowed to go to ``endpoint``; every client calls this before every request. ``credentialed``:
    the text is under a data use agreement.

    Returns None where there is nothing to disclose: the cases are open, or the endpoint is on this machine. Returns the
    host where ``governance`` names an agreement for sending credentialed text to another machine. Raises
    :class:`GovernanceError` where it names none, and for an unusable address; the message names the data set
    ``dataset`` (empty: no data set).
    """
    if is_local(endpoint) or not credentialed:
        return None
    host = host_of(endpoint)
    if not (governance.remote_agreement or "").strip():
        cases = f"credentialed cases (data.{dataset})" if dataset else "credentialed cases"
        problem = f"text of {cases} must not be sent to {host}, which is another machine"
        name_it = "name the agreement that allows it in governance.remote_agreement"
        raise GovernanceError(f"{problem}; use a model on this one (a folder, or a server at 127.0.0.1), or {name_it}")
    return host
