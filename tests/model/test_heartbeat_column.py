"""The column that marks heartbeats: of booleans, beside one that names hosts."""

from __future__ import annotations

import msgspec
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.model.validation.definition import validate_table

TABLE = Table(
    name="t",
    topic="t",
    columns=(Column("at", "bigint"), Column("host", "string"), Column("alive", "boolean")),
    time=TimeColumn("at"),
    host_column="host",
    heartbeat_column="alive",
)


def test_a_boolean_beside_a_host_marks_heartbeats() -> None:
    validate_table(TABLE)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heartbeat_column": "host"}, "no mark of heartbeats; expected a boolean column of the table"),
        ({"heartbeat_column": "aliv"}, "did you mean 'alive'"),
        ({"host_column": None}, "a heartbeat is of a host; expected host_column too"),
    ],
)
def test_others_are_refused(changes: dict[str, str | None], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        validate_table(msgspec.structs.replace(TABLE, **changes))
