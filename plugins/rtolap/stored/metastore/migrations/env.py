"""Alembic runs this file by path, for each command; `config.attributes["connection"]` is the ledger's."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context

from rtolap.base.errors import DefinitionError
from rtolap.stored.metastore.dialects import MySqlDialect
from rtolap.stored.metastore.schema import VERSION_TABLE, metadata


def run(connection: sa.Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, version_table=VERSION_TABLE)
    with context.begin_transaction():
        context.run_migrations()


def run_for_a_developer() -> None:
    """Run for the `alembic` command, which has an address and no connection."""
    address = context.get_x_argument(as_dictionary=True).get("ledger")
    if not isinstance(address, str):
        raise DefinitionError("alembic was given no ledger", action="give -x ledger=sqlite:///path")
    url = sa.make_url(address)
    engine = (
        sa.create_engine(url) if url.get_backend_name() == "sqlite" else MySqlDialect().create_engine(url)
    )
    with engine.begin() as connection:
        run(connection)


given = context.config.attributes.get("connection")
if given is None:
    run_for_a_developer()
else:
    run(given)
