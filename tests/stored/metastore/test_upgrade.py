"""The revisions as a developer and a starting program meet them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.upgrade import HEAD, SHIPPED

from tests.support.stored.ledger_of_before import check_incarnations_after_upgrade

_PROJECT = Path(__file__).resolve().parents[3]


def alembic(address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "alembic", "-x", f"ledger={address}", *arguments],
        cwd=_PROJECT,
        env={**os.environ, "PYTHONPATH": str(_PROJECT / "plugins")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_head_that_is_known_without_alembic_is_the_newest_revision() -> None:
    config = Config()
    config.set_main_option("script_location", str(SHIPPED.folder))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [HEAD]
    assert len(list(script.walk_revisions())) == len(list((SHIPPED.folder / "versions").glob("r*.py")))


def test_the_command_of_alembic_brings_a_ledger_to_the_schema_that_programs_use(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'ledger.db'}"
    assert "No such revision" not in alembic(address, "upgrade", "head").stderr
    checked = alembic(address, "check")
    assert (checked.returncode, checked.stdout.strip()) == (0, "No new upgrade operations detected.")
    Ledger.open(address).close()


def test_the_command_of_alembic_says_that_it_wants_an_address(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "alembic", "current"],
        cwd=_PROJECT,
        env={**os.environ, "PYTHONPATH": str(_PROJECT / "plugins")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode != 0
    assert "give -x ledger=" in result.stderr


@pytest.mark.parametrize("is_new", [True, False])
def test_alembic_is_loaded_only_where_the_schema_has_to_change(tmp_path: Path, is_new: bool) -> None:
    address = f"sqlite:///{tmp_path / 'ledger.db'}"
    if not is_new:
        Ledger.open(address).close()
    program = (
        "import sys; from rtolap.stored.metastore.database import Ledger;"
        f"Ledger.open({address!r}).close(); print('alembic' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(_PROJECT / "plugins")},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert result.stdout.strip() == str(is_new)


def test_a_ledger_of_the_revision_before_keeps_its_partitions_and_gives_incarnations_from_then_on(
    tmp_path: Path,
) -> None:
    address = f"sqlite:///{tmp_path / 'ledger.db'}"
    check_incarnations_after_upgrade(sa.create_engine(address), lambda: Ledger.open(address))
