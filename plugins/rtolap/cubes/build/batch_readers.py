"""Options of Spark's readers of databases and Iceberg tables that no batch source names.

Databases: Spark quotes names in the way of the database that the URL names. It knows `jdbc:mysql` and not
`jdbc:mariadb`: there it quotes names as standard SQL does, which MariaDB reads as texts, so that each row
would hold the names of its columns. MariaDB's driver takes URLs of MySQL where `permitMysqlScheme` is set.
Drivers give instants in the zone of the session and of the JVM: both are UTC here, so that an instant is what
the database means whatever zone the hosts have. A time without a zone stays without one.

Iceberg: newer releases no longer take their own options for older snapshots, but Spark's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rtolap.base.errors import DefinitionError
from rtolap.cubes.build.session import PYTHON_SETTING
from rtolap.model.batch import BatchSource

FETCHED_ROWS = "10000"  # drivers of MySQL and PostgreSQL hold a whole result in memory otherwise
_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "Etc/GMT", "Etc/UCT", "UCT", "Zulu", "Universal")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Database(NamedTuple):
    """A kind of database.

    Attributes:
        driver: class of its JDBC driver. Spark does not find one in a jar of `--jars` unless it is named.
        session: statement that begins each session.
    """

    driver: str
    session: str | None = None


_IN_UTC = "SET time_zone = '+00:00'"
DATABASES: Mapping[str, Database] = {
    "mariadb": Database("org.mariadb.jdbc.Driver", _IN_UTC),
    "mysql": Database("com.mysql.cj.jdbc.Driver", _IN_UTC),
    "postgresql": Database("org.postgresql.Driver"),
    "sqlserver": Database("com.microsoft.sqlserver.jdbc.SQLServerDriver"),
    "oracle": Database("oracle.jdbc.OracleDriver"),
    "db2": Database("com.ibm.db2.jcc.DB2Driver"),
}


def database_of(source: BatchSource) -> Database | None:
    """Return the kind of database that the URL of a source names; None for one that is not known."""
    scheme = source.options["url"].split(":")[1]
    return DATABASES.get(scheme)


def reader_options(source: BatchSource) -> dict[str, str]:
    """Return the options for Spark's reader; secrets are not among them."""
    if source.format == "jdbc":
        return _of_database(source)
    if source.format == "iceberg":
        return _of_iceberg(source.options)
    return dict(source.options)


def _of_database(source: BatchSource) -> dict[str, str]:
    options = {"fetchsize": FETCHED_ROWS, **source.options, "preferTimestampNTZ": "true"}
    database = database_of(source)
    if database is not None:
        options["driver"] = database.driver
        if database.session is not None:
            options["sessionInitStatement"] = database.session
    url = options["url"]
    if url.startswith("jdbc:mariadb:"):
        mark = "&" if "?" in url else "?"
        options["url"] = f"jdbc:mysql:{url.removeprefix('jdbc:mariadb:')}{mark}permitMysqlScheme=true"
    return options


def _of_iceberg(options: Mapping[str, str]) -> dict[str, str]:
    translated = {}
    for name, value in options.items():
        if name == "as-of-timestamp":
            instant = _EPOCH + timedelta(milliseconds=int(value))
            translated["timestampAsOf"] = instant.strftime("%Y-%m-%d %H:%M:%S.%f")
        else:  # a snapshot, a branch or a tag
            translated["versionAsOf"] = value
    return translated


def keep_jvms_in_utc(spark: SparkSession) -> None:
    """Have this JVM take times of databases in UTC.

    Raises DefinitionError where other JVMs read them, and are not in UTC.
    """
    zones = spark.sparkContext._jvm.java.util.TimeZone  # type: ignore[union-attr]
    zones.setDefault(zones.getTimeZone("UTC"))
    if (spark.conf.get("spark.master", "") or "").startswith("local"):
        return
    tasks = spark.sparkContext.defaultParallelism
    zone = F.reflect(F.lit("java.time.ZoneId"), F.lit("systemDefault")).alias("zone")
    found = {row["zone"] for row in spark.range(0, tasks, 1, tasks).select(zone).distinct().collect()}
    others = sorted(found - set(_UTC))
    if others:
        raise DefinitionError(
            "times of a database cannot be read by these executors",
            expected="JVMs whose zone is UTC, since JDBC drivers give times in the zone of the JVM",
            found=", ".join(others),
            action=f"set spark.executor.extraJavaOptions=-Duser.timezone=UTC where {PYTHON_SETTING} is set",
        )
