"""The run of Alembic that brings a ledger's schema from one revision to the newest."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Lock

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from rtolap.base.errors import SchemaTooNew

log = logging.getLogger(__name__)

# Alembic keeps what it works on in globals of its own.
_one_in_this_process = Lock()


def run_revisions(connection: sa.Connection, folder: Path, present: str | None, head: str) -> None:
    """Run the revisions of `folder` that come after `present`. Raises SchemaTooNew where it is not known."""
    with _one_in_this_process:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        known = {revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()}
        if present is not None and present not in known:
            raise SchemaTooNew(
                "the ledger's schema is newer than this program",
                expected=f"revision {head} or an earlier one",
                found=f"revision {present}",
                action="start a newer version of the program",
            )
        command.upgrade(config, "head")
    log.info("the ledger's schema went from revision %s to %s", present, head)
