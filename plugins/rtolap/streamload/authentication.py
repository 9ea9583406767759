"""Who may ask a door: users with a password on the public paths, the cluster's token on its own."""

from __future__ import annotations

import hmac

from fastapi import Request

from rtolap.base.errors import Unauthorized
from rtolap.base.users import Users


class Guard:
    def __init__(self, users: Users, token: str) -> None:
        self._users = users
        self._token = token.encode()

    def user(self, request: Request) -> str:
        """The name behind Basic credentials. Raises Unauthorized."""
        scheme, value = _authorization(request)
        if scheme != "basic":
            raise Unauthorized("no valid Basic authorization")
        return self._users.verify_basic(value)

    def loader(self, request: Request) -> str:
        """The name of a user who may load. Raises Unauthorized, Forbidden."""
        name = self.user(request)
        self._users.require(name, "load")
        return name

    def token(self, request: Request) -> None:
        """The cluster's bearer token. Raises Unauthorized."""
        scheme, value = _authorization(request)
        if scheme != "bearer" or not hmac.compare_digest(value.encode(), self._token):
            raise Unauthorized("the bearer token is missing or wrong", action="send the cluster's token")

    def anybody(self, request: Request) -> None:
        """A user or the token."""
        if _authorization(request)[0] == "bearer":
            self.token(request)
        else:
            self.user(request)


def _authorization(request: Request) -> tuple[str, str]:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return scheme.lower(), value.strip()
