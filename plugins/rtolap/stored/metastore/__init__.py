"""The ledger holds, in SQL (MySQL or MariaDB; SQLite for a laptop), what must survive every process.

Nouns: a **write** is one SQL transaction with a key of its own; a **lease** names the owner of something for
a time, by the database's clock, and an **epoch** that is raised whenever the owner changes; a write is
**fenced** when it requires, under a lock that it holds until its commit, that the epoch is still its own.

`database` opens and retries, `dialects` knows how the kinds of server differ, `schema` is the tables and
`migrations` how they came to be, which `upgrade` runs. `leases` is the fence. Above them stand the
operations: `transactions` and `partitions` for those who load, `load_jobs` and `offsets` for a loader,
`dead_letters` for what it has refused.

Invariants: a commit that is durable but was never acknowledged is found again by its key, not repeated; names
and labels differ by case; an owner that was deposed changes nothing; instants are ms since the epoch by the
database's clock. SQLAlchemy and Alembic are imported nowhere else. Never: a secret in a log, an address or an
error.
"""
