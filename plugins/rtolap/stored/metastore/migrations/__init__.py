"""The revisions of the ledger's schema, as Alembic has them. `rtolap.stored.metastore.upgrade` runs them.

`versions` holds a module a revision, `env` is what Alembic runs them in, `repeatable` has the operations that
a revision is written in, `script.py.mako` is the pattern of a new one.

A new revision: change `stored.metastore.schema`, add `versions/r<number>_<what>.py` after the last one, raise
`HEAD` in `stored.metastore.upgrade`. The first draft of it comes from

    alembic -x ledger=sqlite:////tmp/ledger.db upgrade head
    alembic -x ledger=sqlite:////tmp/ledger.db revision --autogenerate --rev-id <number> -m "<what>"

Invariants: a test holds that the newest revision gives the tables of `schema`, on SQLite and MariaDB. MySQL
commits each definition by itself, so every operation of a revision does nothing where it is done already: a
revision that was cut short is run again. A revision is never changed once it was released. Forward only.
"""
