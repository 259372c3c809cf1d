"""One request to a registry and its answer: time limits, retries, redirects, bounded bodies."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from ci.console import say
from ci.errors import InfrastructureError
from ci.image_tags import is_loopback
from ci.registry_addresses import followed, host_of, origin
from ci.registry_errors import BadAnswer, ServerFault, TooManyRequests, Unreachable
from ci.text import show

if TYPE_CHECKING:
    import requests

_TOO_MANY = 429
_SERVER_FAULTS = frozenset({408, *range(500, 600)} - {501, 505})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5
_CHUNK = 1 << 16
_LONGEST_WAIT = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a registry is waited for; all in seconds but ``tries``.

    ``pause``: after the first failed try, then doubled. ``longest_pause``: the most that a Retry-After is
    followed. ``total``: one operation of ``ci.registry`` with all its requests.
    """

    tries: int = 4
    pause: float = 1.0
    longest_pause: float = 60.0
    connect: float = 10.0
    read: float = 30.0
    total: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked. ``where`` names it in messages; ``until``: the monotonic time by which all has to be done."""

    method: str
    url: str
    where: str
    until: float
    limit: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer with its whole body. ``headers``: names in lower case; ``url``: where it came from in the end."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


class _TryAgainError(Exception):
    """This try failed; ``asked``: the seconds that the server wants to be left alone."""

    def __init__(self, error: InfrastructureError, asked: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.asked = asked


def retry_after(text: str | None, now: float) -> float | None:
    """The seconds that a Retry-After asks for, from seconds or an HTTP date; None where there is none."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text[:10]), _LONGEST_WAIT))
    try:
        date = parsedate_to_datetime(text)
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, OverflowError):
        return None


class Http:
    """Sends requests, and again what failed in a way that may pass."""

    def __init__(self, patience: Patience, tell: Callable[[str], None] = say) -> None:
        self._patience = patience
        self._tell = tell

    def exchange(self, request: Request, authorization: str | None = None) -> Response:
        """The answer, whatever its status, unless that asks to come again later.

        ``authorization`` goes to the origin of the request's address only; redirects of a GET are followed
        without it elsewhere.

        Raises:
            Unreachable, TooManyRequests, ServerFault: still so after the last try.
            BadAnswer: too much, or a redirect that is not followed.
        """
        pause = self._patience.pause
        for number in range(1, self._patience.tries + 1):
            try:
                return self._follow(request, authorization)
            except _TryAgainError as failed:
                wait = pause if failed.asked is None else max(failed.asked, pause)
                self._give_up(request, failed, number, wait)
                asked = ", as it asks" if failed.asked is not None else ""
                self._tell(
                    f"{failed.error.what}; trying again in {wait:.3g} s{asked} ({number + 1} of {self._patience.tries})"
                )
            time.sleep(wait)
            pause *= 2
        raise AssertionError("the last try returns or raises")

    def _give_up(self, request: Request, failed: _TryAgainError, number: int, wait: float) -> None:
        """Raise the error of the last try, unless another one is to follow after ``wait`` seconds."""
        error = failed.error
        if failed.asked is not None and failed.asked > self._patience.longest_pause:
            longest = self._patience.longest_pause
            ending = f"asks to be left alone for {failed.asked:.0f} s, more than the {longest:.0f} s waited here"
        elif number == self._patience.tries:
            ending = f"so {number} times" if number > 1 else "tried once"
        elif time.monotonic() + wait >= request.until:
            ending = f"after {number} tries no time is left"
        else:
            return
        raise type(error)(f"{error.what} ({ending})", hint=error.hint) from failed

    def _follow(self, request: Request, authorization: str | None) -> Response:
        url = request.url
        for _ in range(_MOST_REDIRECTS + 1):
            response = self._once(request, url, authorization)
            if response.status not in _REDIRECTS:
                return response
            if request.method != "GET" or "location" not in response.headers:
                raise BadAnswer(f"{request.where}: {host_of(url)} answers {request.method} with a redirect")
            target = followed(url, response.headers["location"], request.where)
            if origin(target) != origin(url):
                authorization = None
            url = target
        raise BadAnswer(f"{request.where}: {host_of(url)} redirects more than {_MOST_REDIRECTS} times")

    def _once(self, request: Request, url: str, authorization: str | None) -> Response:
        import requests
        import urllib3

        left = max(0.1, request.until - time.monotonic())
        headers = {**request.headers, "Accept-Encoding": "identity"}
        if authorization is not None:
            headers["Authorization"] = authorization
        with _session() as session:
            try:
                with session.request(
                    request.method,
                    url,
                    headers=headers,
                    data=request.body,
                    timeout=(min(self._patience.connect, left), min(self._patience.read, left)),
                    allow_redirects=False,
                    stream=True,
                    # no proxy stands between this machine and itself
                    proxies={"no_proxy": urlsplit(url).hostname or ""} if is_loopback(urlsplit(url).netloc) else None,
                ) as answer:
                    return self._read(request, url, answer)
            except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
                self._failed(request, url, error)

    def _read(self, request: Request, url: str, answer: "requests.Response") -> Response:
        host = host_of(url)
        headers = MappingProxyType({name.lower(): value for name, value in answer.headers.items()})
        asked = retry_after(headers.get("retry-after"), time.time())
        if answer.status_code == _TOO_MANY:
            hint = "log in (docker login, or CI_REGISTRY_USER and CI_REGISTRY_PASSWORD) for a higher limit, or wait"
            error = TooManyRequests(f"{request.where}: {host} answers 429, too many requests", hint=hint)
            raise _TryAgainError(error, asked)
        if answer.status_code in _SERVER_FAULTS:
            hint = "the fault is the server's: try again later"
            raise _TryAgainError(ServerFault(f"{request.where}: {host} answers {answer.status_code}", hint=hint), asked)
        body = bytearray()
        # a part at a time as it comes, so that a trickle of bytes does not outlast the time that there is
        while part := answer.raw.read1(_CHUNK, decode_content=True):
            body += part
            if len(body) > request.limit:
                raise BadAnswer(f"{request.where}: {host} sends more than {request.limit >> 20} MiB")
            if time.monotonic() > request.until:
                raise Unreachable(f"{request.where}: {host} sends too slowly", hint="try again later")
        return Response(status=answer.status_code, headers=headers, body=bytes(body), url=url)

    def _failed(self, request: Request, url: str, error: Exception) -> NoReturn:
        """Raise what a failed connection means."""
        import requests
        import urllib3

        where, host = request.where, host_of(url)
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise Unreachable(
                f"{where}: the certificate of {host} is not trusted",
                hint="set REQUESTS_CA_BUNDLE to the file with your authority's certificate",
            ) from error
        passing = (
            requests.exceptions.ConnectionError,  # also connect time-outs, TLS faults and proxies
            requests.exceptions.Timeout,
            requests.exceptions.ChunkedEncodingError,
            urllib3.exceptions.HTTPError,  # from reading the body, where requests does not translate
        )
        if not isinstance(error, passing):
            raise BadAnswer(f"{where}: {host}: {show(error, 150)}") from error
        hint = "check the address, your connection and proxies"
        raise _TryAgainError(Unreachable(f"{where}: {host}: {_reason(error)}", hint=hint)) from error


def _session() -> "requests.Session":
    """A session that does nothing of its own accord."""
    import requests

    class Plain(requests.Session):
        def get_redirect_target(self, resp: requests.Response) -> None:
            """Else requests reads the whole body of a redirect, even of one that it is not to follow."""

    session = Plain()
    session.auth = _as_it_is  # else requests takes a password from ~/.netrc
    return session


def _as_it_is(request: "requests.PreparedRequest") -> "requests.PreparedRequest":
    return request


def _reason(error: BaseException) -> str:
    """Why, in a few words, from the innermost cause."""
    import requests
    import urllib3

    timeouts = (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError)
    cause: BaseException | None = error
    reason = timed_out = None
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            reason = show(cause.strerror, 100)
        elif isinstance(cause, urllib3.exceptions.IncompleteRead):
            reason = "the answer breaks off"
        elif isinstance(cause, timeouts):  # urllib3 also counts what is refused among these
            timed_out = "no answer in time"
        cause = cause.__cause__ or cause.__context__
    return reason or timed_out or f"the connection broke ({type(error).__name__})"
