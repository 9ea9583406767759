"""Authorization of a front end's requests: users on the public paths, the cluster's token on its own.

Whether credentials are right, `servers.http_guard` has seen by then.
"""

from __future__ import annotations

from fastapi import Request

from rtolap.base.errors import Forbidden, Unauthorized
from rtolap.base.users import Users
from rtolap.servers.http_guard import caller_of
from rtolap.stored.metastore.records import Transaction


class Guard:
    def __init__(self, users: Users, token: str) -> None:
        self.users = users
        self.cluster_token = token

    def user(self, request: Request) -> str:
        """Return the name behind Basic credentials. Raises Unauthorized."""
        name = caller_of(request).user
        if not name:
            raise Unauthorized("no valid Basic authorization")
        return name

    def loader(self, request: Request) -> str:
        """Return the name of the user, who may load. Raises Unauthorized, Forbidden."""
        name = self.user(request)
        self.users.require(name, "load")
        return name

    def owns(self, user: str, transaction: Transaction) -> None:
        """Raise Forbidden unless the transaction is this user's, or has no user's name. A user who may define
        tables may end everybody's."""
        if transaction.user_name in (None, user):
            return
        try:
            self.users.require(user, "define")
        except Forbidden:
            raise Forbidden(
                f"transaction {transaction.txn_id} with label {transaction.label} is another user's",
                expected=f"user {transaction.user_name}, or one with the right to define",
                found=user,
            ) from None

    def token(self, request: Request) -> None:
        """Check the cluster's bearer token. Raises Unauthorized."""
        if caller_of(request).user:
            raise Unauthorized("the bearer token is missing or wrong", action="send the cluster's token")
