"""How a registry lets us in: anonymous, basic, or a bearer token from the server that it names."""

import json
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import parse_qsl, urlencode, urlsplit

from ci.challenges import Challenge, parse_challenges
from ci.docker_credentials import PASSWORD, REGISTRY, USER, Credentials
from ci.image_tags import DOCKER_HUB, ImageName
from ci.registry_addresses import followed, host_of, origin
from ci.registry_errors import AccessDenied, BadAnswer, shown_errors
from ci.registry_http import Http, Request, Response

_OK = 200
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_TOKEN_LIMIT = 1 << 20
_LONGEST_TOKEN = 1 << 16
_CLIENT = "ci-of-miles"

Lookup = Callable[[str], Credentials | None]


class Authorizer:
    """Sends the requests of one repository with what the registry asks for.

    Credentials are looked up only once the registry asks, and go nowhere but to it and to the token server
    that it names.
    """

    def __init__(self, http: Http, image: ImageName, base: str, lookup: Lookup) -> None:
        self._http = http
        self._image = image
        self._base = base
        self._lookup = lookup
        self._looked_up: tuple[Credentials | None] | None = None
        self._held: dict[str, str] = {}

    def send(self, request: Request) -> Response:
        """The answer to a request of the registry.

        Raises:
            AccessDenied: 401 or 403 with all that there is to offer.
            BadAnswer, InfrastructureError, UsageError: see ``Http.exchange`` and ``find_credentials``.
        """
        actions = "pull,push" if request.method == "PUT" else "pull"
        response = self._http.exchange(request, self._held.get(actions))
        # another server, to which a redirect led, gets no say in where credentials go
        if response.status == _UNAUTHORIZED and origin(response.url) == origin(self._base):
            authorization = self._authorization(request, response, actions)
            if authorization is not None:
                self._held[actions] = authorization
                response = self._http.exchange(request, authorization)
        if response.status in {_UNAUTHORIZED, _FORBIDDEN}:
            raise self._denied(request, response, actions)
        return response

    def _credentials(self) -> Credentials | None:
        if self._looked_up is None:
            self._looked_up = (self._lookup(self._image.registry),)
        return self._looked_up[0]

    def _authorization(self, request: Request, response: Response, actions: str) -> str | None:
        """The header that answers the registry's challenge; None where there is nothing to offer."""
        challenges = parse_challenges(response.headers.get("www-authenticate", ""))
        bearer = next((challenge for challenge in challenges if challenge.scheme == "bearer"), None)
        if bearer is not None:
            return self._token(request, bearer, actions)
        if any(challenge.scheme == "basic" for challenge in challenges):
            known = self._credentials()
            return None if known is None or known.is_identity_token else known.basic()
        raise BadAnswer(
            f"{request.where}: {host_of(response.url)} answers 401 and asks for neither basic nor bearer authentication"
        )

    def _token(self, request: Request, challenge: Challenge, actions: str) -> str:
        if not challenge.parameters.get("realm"):
            raise BadAnswer(f"{request.where}: {host_of(request.url)} asks for a bearer token, but not from where")
        realm = followed(self._base, challenge.parameters["realm"], request.where)
        known = self._credentials()
        scopes = challenge.parameters.get("scope", "").split()
        wanted = f"repository:{self._image.repository}:{actions}"
        if not any(_covers(scope, actions) for scope in scopes):
            scopes.append(wanted)  # some registries ask for less than they then require
        service = challenge.parameters.get("service")
        asked = [("service", service)] if service is not None else []
        ask = replace(request, method="GET", headers={}, body=None, limit=_TOKEN_LIMIT)
        if known is not None and known.is_identity_token:
            form = [*asked, ("scope", " ".join(scopes)), ("client_id", _CLIENT)]
            form += [("grant_type", "refresh_token"), ("refresh_token", known.secret)]
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            ask = replace(ask, method="POST", url=realm, headers=headers, body=urlencode(form).encode())
            response = self._http.exchange(ask)
        else:
            ask = replace(ask, url=_with_query(realm, [*asked, *(("scope", scope) for scope in scopes)]))
            response = self._http.exchange(ask, None if known is None else known.basic())
        if response.status in {_UNAUTHORIZED, _FORBIDDEN}:
            raise self._denied(request, response, actions)
        return f"Bearer {_read_token(request, response)}"

    def _denied(self, request: Request, response: Response, actions: str) -> AccessDenied:
        known = self._credentials()
        registry = self._image.registry
        wish = "write" if "push" in actions else "read"
        where = "" if registry == DOCKER_HUB else f" {registry}"
        unset = "" if registry == DOCKER_HUB else f", with {REGISTRY}={registry}"
        login = f"docker login{where}, or set {USER} and {PASSWORD}{unset}"
        if known is None:
            hint = f"no credentials for {registry} were found: {login}; or check the name of the repository"
        else:
            hint = f"the credentials of {known.origin} do not let you {wish} it: {login}; or check the name"
        return AccessDenied(
            f"{request.where}: {host_of(response.url)} answers {response.status}{shown_errors(response.body)}",
            hint=hint,
        )


def _covers(scope: str, actions: str) -> bool:
    kind, _, rest = scope.partition(":")
    given = set(rest.rpartition(":")[2].split(","))
    return kind == "repository" and (set(actions.split(",")) <= given or "*" in given)


def _with_query(url: str, added: list[tuple[str, str]]) -> str:
    parts = urlsplit(url)
    return parts._replace(query=urlencode([*parse_qsl(parts.query), *added]), fragment="").geturl()


def _read_token(request: Request, response: Response) -> str:
    server = host_of(response.url)
    if response.status != _OK:
        raise BadAnswer(
            f"{request.where}: the token server {server} answers {response.status}{shown_errors(response.body)}"
        )
    try:
        answer = json.loads(response.body)
        token = answer.get("token") or answer.get("access_token")
    except (ValueError, AttributeError, RecursionError):
        token = None
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
        raise BadAnswer(f"{request.where}: the token server {server} gives no token")
    if len(token) > _LONGEST_TOKEN:
        raise BadAnswer(f"{request.where}: the token server {server} gives a token of {len(token)} characters")
    return token
