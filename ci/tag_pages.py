"""Pages of a registry's list of tags. A page that is not understood is an error: its tags would be missing."""

import json
import re
from urllib.parse import urljoin

from ci.image_tags import is_tag
from ci.registry_addresses import origin
from ci.registry_errors import BadAnswer
from ci.text import show

_NEXT = re.compile(r"<([^<>]*)>.*;[ \t]*rel[ \t]*=[ \t]*\"?next\"?[ \t]*(?:;.*)?", re.IGNORECASE)


def tags_of(body: bytes, where: str) -> list[str]:
    """The tags of one page; ``where`` names the list.

    Raises:
        BadAnswer: something else than a list of tags.
    """
    try:
        tags = json.loads(body)["tags"]
    except (ValueError, KeyError, TypeError, RecursionError):
        tags = ""
    tags = [] if tags is None else tags
    if not isinstance(tags, list) or not all(isinstance(tag, str) and is_tag(tag) for tag in tags):
        raise BadAnswer(f"{where}: the answer is not a list of tags")
    return tags


def next_page(url: str, link: str | None, where: str) -> str | None:
    """The address of the page after ``url`` by its Link header; None after the last.

    Raises:
        BadAnswer: it is on another server, or the header cannot be read.
    """
    if link is None or "next" not in link.lower():
        return None
    try:
        targets: list[str] = [matched[1] for part in _split(link) if (matched := _NEXT.fullmatch(part)) is not None]
        address = urljoin(url, targets[0])
        elsewhere = origin(address) != origin(url) or "@" in address.partition("?")[0]
    except (ValueError, IndexError) as error:
        raise BadAnswer(f"{where}: the address of the next page cannot be read: `{show(link, 100)}`") from error
    if elsewhere:
        raise BadAnswer(f"{where}: the next page is on another server, `{show(address, 100)}`; nothing was sent there")
    return address


def _split(link: str) -> list[str]:
    """The links of a header; addresses may hold commas, but each link begins with ``<``."""
    return [part.strip(" \t,") for part in re.split(r",[ \t]*(?=<)", link)]
