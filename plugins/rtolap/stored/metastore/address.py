"""The address of a ledger, and the password for it."""

from __future__ import annotations

import sqlalchemy as sa

from rtolap.base.errors import DefinitionError


def checked_address(address: str) -> sa.URL:
    """Raises DefinitionError for one that cannot be read, names another kind of database or holds a password,
    which it does not repeat."""
    try:
        url = sa.make_url(address)
    except (sa.exc.ArgumentError, ValueError):
        # without the address: what cannot be parsed may hold a password
        raise DefinitionError(
            "the ledger's address cannot be read",
            expected="mysql://user@host:port/database or sqlite:///path",
        ) from None
    if url.password is not None:
        raise DefinitionError(
            "the ledger's address must not hold a password",
            found=url.render_as_string(hide_password=True),
            action="put it into a file and name the file",
        )
    if url.get_backend_name() not in ("mysql", "mariadb", "sqlite"):
        raise DefinitionError(
            "the ledger cannot use this kind of database",
            expected="mysql, mariadb or sqlite",
            found=url.get_backend_name(),
        )
    return url
