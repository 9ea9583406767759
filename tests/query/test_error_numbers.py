"""Clients choose an exception by number: it comes from the error's type, whatever its text says."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from rtolap.base import errors
from rtolap.base.errors import RtolapError, from_dict
from rtolap.protocols.query.messages import WarningCode
from rtolap.query.mysql.codes import WARNING_NUMBERS, error_code

PROJECT = Path(__file__).resolve().parents[2]

MISLEADING = "unknown table, too many, interrupted, bad SQL: is there already"
NUMBERS = {
    errors.SqlSyntaxError: 1064,
    errors.UnsupportedSql: 1235,
    errors.UnknownTable: 1146,
    errors.UnknownColumn: 1054,
    errors.UnknownDatabase: 1049,
    errors.UnknownFunction: 1305,
    errors.QueryInterrupted: 1317,
    errors.QueryTimeout: 3024,
    errors.OutOfRange: 1690,
    errors.UnreadableValue: 1292,
    errors.QueryError: 1105,
    errors.AlreadyExists: 1050,
    errors.PartitionExists: 1517,
    errors.NotFound: 1146,
    errors.PartitionNotFound: 1507,
    errors.ColumnNotFound: 1054,
    errors.ColumnExists: 1060,
    errors.UnknownVariable: 1193,
    errors.UnknownConnection: 1094,
    errors.TooManyAtOnce: 1040,
    errors.Unavailable: 1205,
    errors.NotYet: 1205,
    errors.Refused: 1105,
    errors.Unauthorized: 1045,
    errors.Forbidden: 1142,
    errors.Corrupted: 1194,
    errors.DefinitionError: 1105,
}


@pytest.mark.parametrize("kind", NUMBERS, ids=lambda kind: kind.__name__)
def test_a_number_is_of_the_type_also_behind_a_wire(kind: type[RtolapError]) -> None:
    error = kind(MISLEADING)
    assert error_code(error)[0] == NUMBERS[kind]
    assert error_code(from_dict(error.to_dict())) == error_code(error)


def test_every_warning_has_a_number_and_stands_on_the_page() -> None:
    codes = get_args(WarningCode)
    assert WARNING_NUMBERS.keys() == set(codes)
    assert len(set(WARNING_NUMBERS.values())) == len(codes)
    page = (PROJECT / "docs" / "sql" / "endpoints.md").read_text()
    missing = [code for code in codes if f"| `{code}` | {WARNING_NUMBERS[code]} |" not in page]
    assert missing == []
