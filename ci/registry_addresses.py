"""Addresses that a registry hands out, and which of them are followed."""

from urllib.parse import SplitResult, urljoin, urlsplit

from ci.image_tags import is_loopback
from ci.registry_errors import BadAnswer
from ci.text import show


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port: what credentials are for."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or (80 if parts.scheme == "http" else 443)


def host_of(url: str) -> str:
    """Host and port of an address, safe to show."""
    return show(urlsplit(url).netloc.rpartition("@")[2], 100)


def followed(url: str, target: str, where: str) -> str:
    """The address that ``target``, a Location or realm from the server at ``url``, leads to.

    Raises:
        BadAnswer: not an address, one with a password in it, or one that leaves TLS or takes plain text off the host.
    """
    try:
        address = urljoin(url, target)
        parts = urlsplit(address)
        port_is_one = parts.port is None or parts.port > 0
    except ValueError:
        parts, address, port_is_one = SplitResult("", "", "", "", ""), "", False
    plain_here = parts.scheme == "http" and urlsplit(url).scheme == "http" and _same_place(url, address)
    if not port_is_one or not parts.hostname or "@" in parts.netloc or not (parts.scheme == "https" or plain_here):
        raise BadAnswer(
            f"{where}: {host_of(url)} points to `{show(target, 100)}`, which is not followed",
            hint="only https is, without a password in the address; a registry on this machine may stay on it",
        )
    return address


def _same_place(url: str, address: str) -> bool:
    before, after = urlsplit(url), urlsplit(address)
    return before.hostname == after.hostname or (is_loopback(before.netloc) and is_loopback(after.netloc))
