"""SET sql_mode and SET time_zone are honoured or refused, never accepted and ignored."""

from __future__ import annotations

import pytest
from rtolap.base.errors import QueryError
from rtolap.query.mysql.variables import VARIABLES, Session


@pytest.mark.parametrize(
    ("assignments", "name", "value"),
    [
        (" sql_mode = 'STRICT_TRANS_TABLES'", "sql_mode", "STRICT_TRANS_TABLES"),
        (" SESSION sql_mode = ''", "sql_mode", ""),
        (" @@SESSION.sql_mode = DEFAULT", "sql_mode", VARIABLES["sql_mode"]),
        (
            " sql_mode=CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES'), NAMES utf8mb4",
            "sql_mode",
            VARIABLES["sql_mode"],
        ),
        (" sql_mode=(SELECT REPLACE(@@sql_mode, 'ANSI_QUOTES', ''))", "sql_mode", VARIABLES["sql_mode"]),
        (" SQL_MODE=@OLD_SQL_MODE", "sql_mode", VARIABLES["sql_mode"]),
        (" time_zone = 'UTC'", "time_zone", "UTC"),
        (' autocommit=1, time_zone="SYSTEM"', "time_zone", "SYSTEM"),
        (" time_zone = '+00:00', max_execution_time = 5", "time_zone", "+00:00"),
        (" NAMES utf8mb4", "time_zone", "+00:00"),
    ],
)
def test_what_changes_no_answer_is_taken_and_shown(assignments: str, name: str, value: object) -> None:
    session = Session(1, "ann", "localhost")
    session.set(assignments)
    assert session.variable(name) == value


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (" sql_mode = 'ANSI_QUOTES'", "unsupported sql_mode ANSI_QUOTES"),
        (" SESSION sql_mode='STRICT_TRANS_TABLES, ansi_quotes'", "quote names with backticks"),
        (" sql_mode = ANSI", "unsupported sql_mode ANSI"),
        (" sql_mode=CONCAT(@@sql_mode, ',ANSI_QUOTES')", "unsupported sql_mode ANSI_QUOTES"),
        (" NAMES utf8mb4, sql_mode='NO_BACKSLASH_ESCAPES'", "a backslash that escapes"),
        (" time_zone = '+05:00'", "unsupported time_zone"),
        (" autocommit=1, @@session.time_zone = 'Europe/Berlin'", "CONVERT_TZ"),
        (" sql_mode='', time_zone = 'America/New_York'", "unsupported time_zone"),
    ],
)
def test_what_would_change_an_answer_is_refused_and_changes_nothing(assignments: str, words: str) -> None:
    session = Session(1, "ann", "localhost")
    with pytest.raises(QueryError, match=words):
        session.set(assignments)
    assert session.variable("time_zone") == VARIABLES["time_zone"]
