"""The SQL that users write: MySQL's grammar, with `||` as concatenation.

MySQL's rules for quotes are kept (backticks quote names, double quotes make strings) because its clients
write them; `||` as a logical OR would silently turn a concatenation into a boolean, so it concatenates.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.tokenizer_core import TokenType


class RtolapSql(MySQL):
    class Parser(MySQL.Parser):  # type: ignore[misc,valid-type]
        DISJUNCTION: ClassVar = {
            token: kind for token, kind in MySQL.Parser.DISJUNCTION.items() if token is not TokenType.DPIPE
        }
        TERM: ClassVar = {**MySQL.Parser.TERM, TokenType.DPIPE: exp.DPipe}
        # {d '…'}, {t '…'} and {ts '…'}, which ODBC's and JDBC's users write
        ODBC_DATETIME_LITERALS: ClassVar = {"d": exp.Date, "t": exp.Time, "ts": exp.Timestamp}
        OPERATION_MODIFIERS: ClassVar = {*MySQL.Parser.OPERATION_MODIFIERS, "SQL_CACHE"}


def engine_sql(expression: exp.Expr) -> str:
    """The same tree in the words of the embedded engine."""
    return str(expression.sql(dialect="duckdb"))


def user_sql(expression: exp.Expr) -> str:
    """The tree as its author would have written it, for messages and column names."""
    return str(expression.sql(dialect=RtolapSql))
