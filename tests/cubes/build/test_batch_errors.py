"""Exceptions of Spark's readers become errors that say what to do, by class, SQLSTATE or condition."""

from __future__ import annotations

import pytest
from rtolap.base.errors import DefinitionError, RtolapError, Unavailable
from rtolap.cubes.build.batch_errors import Cause, explained, without_secrets
from rtolap.cubes.build.batch_readers import reader_options
from rtolap.model.batch import BatchSource

JDBC = BatchSource(
    format="jdbc",
    options={"url": "jdbc:mariadb://db/sales?a=b", "dbtable": "orders"},
    secrets={"password": "SALES_PASSWORD"},
)
ICEBERG = BatchSource(format="iceberg", path="lake.db.orders")
SQL = ("SQLSyntaxErrorException", "SQLException", "Exception")
OF_SPARK = Cause(
    ("AnalysisException", "Exception"), "[FAILED_JDBC] it failed", "HV000", "FAILED_JDBC.UNCLASSIFIED"
)
JOB = Cause(("SparkException", "Exception"), "Job aborted")
AWAY = Cause(("ConnectException", "IOException"), "refused")


@pytest.mark.parametrize(
    ("source", "causes", "error", "said"),
    [
        (
            JDBC,
            (OF_SPARK, Cause(("XException", "SQLException"), "denied", "28000")),
            DefinitionError,
            "password",
        ),
        (JDBC, (Cause(SQL, "none", "42S02"),), DefinitionError, "does not exist; expected table orders"),
        (JDBC, (Cause(SQL, "none", "42000"),), DefinitionError, "the database refuses"),
        (JDBC, (OF_SPARK, Cause(SQL, "", "08000"), AWAY), Unavailable, "does not answer"),
        (JDBC, (Cause(("ClassNotFoundException",), "x"),), DefinitionError, "org.mariadb.jdbc.Driver"),
        (ICEBERG, (Cause(("IncompatibleClassChangeError",), "x"),), DefinitionError, "runtime-4.3_2.13"),
        (ICEBERG, (Cause(("NoSuchTableException",), "x"),), DefinitionError, "spark.sql.catalog"),
        (ICEBERG, (Cause(("IllegalArgumentException",), "no snapshot"),), DefinitionError, "no snapshot"),
    ],
)
def test_each_kind_says_what_was_expected(
    source: BatchSource, causes: tuple[Cause, ...], error: type[RtolapError], said: str
) -> None:
    found = explained(causes, source, "4.3.0", opening=True)
    assert type(found) is error
    assert said in str(found)
    assert "found" in str(found)
    assert "Nothing was changed" in str(found)


def test_a_server_that_fails_a_job_is_the_sources_only_where_a_database_says_so() -> None:
    assert explained((JOB, AWAY), ICEBERG, "4.3.0", opening=False) is None
    lost = explained(
        (JOB, Cause(("XException", "SQLException"), "gone", "08006")), JDBC, "4.3.0", opening=False
    )
    assert type(lost) is Unavailable


def test_secrets_are_replaced_and_short_ones_leave_words_whole() -> None:
    assert without_secrets("as u with pass+word: user u", ["u", "pass+word", ""]) == (
        "as (secret) with (secret): user (secret)"
    )


def test_options_are_what_readers_understand() -> None:
    options = reader_options(JDBC)
    assert options["url"] == "jdbc:mysql://db/sales?a=b&permitMysqlScheme=true"
    assert options["driver"] == "org.mariadb.jdbc.Driver"
    assert "password" not in options
    for name, value, wanted in (
        ("snapshot-id", "7", {"versionAsOf": "7"}),
        ("branch", "b", {"versionAsOf": "b"}),
        ("as-of-timestamp", "1700000000123", {"timestampAsOf": "2023-11-14 22:13:20.123000"}),
    ):
        source = BatchSource(format="iceberg", path="a.b", options={name: value})
        assert reader_options(source) == wanted
