"""The user whom a request asks as: its caller, or a person for whom a service with the token asks."""

from __future__ import annotations

import re
from urllib.parse import unquote

from rtolap.base.errors import DefinitionError, Forbidden

# The colon is in no name of the users file: nobody there is meant, and their rights are nobody else's.
_NAMED = re.compile(r"[a-z]{1,20}:[^\x00-\x1f\x7f]{1,200}")


def asking_user(caller: str, on_behalf_of: str) -> str:
    """Return the user whom the statement counts for.

    Args:
        caller: of the users file; empty for who has the cluster's token.
        on_behalf_of: the header's value; empty: the caller asks.

    Raises Forbidden for a user who asks for another, and DefinitionError for what is no such name.
    """
    if not on_behalf_of:
        return caller
    if caller:
        raise Forbidden(f"user {caller} may not ask on behalf of others", action="leave the header out")
    named = unquote(on_behalf_of)
    if _NAMED.fullmatch(named) is None:
        raise DefinitionError("not a person of a service", expected="service:name", found=repr(named[:300]))
    return named
