"""${message}"""

from __future__ import annotations

import sqlalchemy as sa

from rtolap.stored.metastore.migrations import repeatable
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    """Each operation by its twin in `repeatable`."""
    ${upgrades if upgrades else "pass"}
