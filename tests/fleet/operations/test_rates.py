"""The reader of brokers' rates, as an operator declares its sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.fleet.operations.rates import rate_reader


def test_no_declared_sources_make_no_reader() -> None:
    assert rate_reader(None) is None


def test_every_broker_without_a_declared_source_is_named(tmp_path: Path) -> None:
    sources = tmp_path / "sources.yaml"
    sources.write_text("brokers: {}\n")
    reader = rate_reader(sources)
    assert reader is not None
    missing = reader([3, 7]).missing
    assert set(missing) == {3, 7}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"absent\.yaml"):
        rate_reader(tmp_path / "absent.yaml")
