"""Errors of Spark and its readers, as errors of ours that say what to do.

An exception of Spark is a chain of Java's. Errors are told apart by the classes in the chain, by SQLSTATE and
by Spark's error conditions, never by their texts, which databases translate. The rules are tried in order,
each on the whole chain: a wrong password is also a connection that failed.

Secrets are replaced in all texts, since a database or a driver may repeat what it was given.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException

from rtolap.base.errors import Corrupted, DefinitionError, RtolapError, Unavailable
from rtolap.cubes.build.batch_readers import database_of
from rtolap.cubes.build.job_progress import ERROR_CHARS, error_text
from rtolap.model.batch import BatchSource

_CAUSES_MAX, _TEXT_CHARS = 12, 600
_WORD_CHARS_MAX = 3  # shorter secrets are replaced as whole words only, or no text would be left
HIDDEN = "(secret)"


class Cause(NamedTuple):
    """An exception of the chain.

    Attributes:
        kinds: simple names of its class and of those above it.
        text: without stack traces.
        sql_state: of a database or of Spark; empty where it has none.
        condition: Spark's name of the error; empty where it has none.
    """

    kinds: tuple[str, ...]
    text: str
    sql_state: str = ""
    condition: str = ""


class _Rule(NamedTuple):
    """Says what an exception means.

    Attributes:
        kinds: classes of a cause that the rule fits.
        states: how the SQLSTATE of such a cause begins.
        conditions: how Spark's name of such a cause begins.
        reading: True where a failed job means it as well, and not only a source that could not be opened.
    """

    error: type[RtolapError]
    what: str
    expected: str
    action: str
    kinds: frozenset[str] = frozenset()
    states: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    reading: bool = True

    def fits(self, cause: Cause) -> bool:
        return (
            not self.kinds.isdisjoint(cause.kinds)
            or (bool(cause.sql_state) and cause.sql_state.startswith(self.states))
            or (bool(cause.condition) and cause.condition.startswith(self.conditions))
        )


_JARS = "name it by `--jars` of spark-submit, or by `jars` of the Airflow connection: see docs/batches.md"
_RULES = (
    _Rule(
        DefinitionError,
        "a jar does not fit the Spark that stages the batch",
        "{jar}, made for Spark {spark}",
        "take the jar for this version of Spark, or stage with a Spark that the jar is made for",
        kinds=frozenset(("IncompatibleClassChangeError", "UnsupportedClassVersionError")),
    ),
    _Rule(
        DefinitionError,
        "Spark lacks a jar for the batch source",
        "{jar}",
        _JARS,
        kinds=frozenset(
            ("ClassNotFoundException", "NoClassDefFoundError", "SparkClassNotFoundException", "NoDriver")
        ),
        conditions=("DATA_SOURCE_NOT_FOUND", "UNSUPPORTED_FILE_SYSTEM"),
    ),
    _Rule(
        DefinitionError,
        "the batch source does not accept the user or the password",
        "a user that may read {where}; {secrets}",
        "look at the user and its grants, and at the variables of `secrets` in the environment of the driver",
        kinds=frozenset(
            (
                *("SQLInvalidAuthorizationSpecException", "AccessControlException", "AccessDeniedException"),
                *("NotAuthorizedException", "ForbiddenException", "InvalidPasswordException"),
            )
        ),
        states=("28", "42501"),
    ),
    _Rule(
        DefinitionError,
        "the catalog of the batch source is not configured in Spark",
        "settings `spark.sql.catalog.…` for the catalog of {where}",
        "give them by `--conf`, or by `conf` of the Airflow connection: see docs/batches.md",
        kinds=frozenset(("CatalogNotFoundException",)),
        conditions=("CATALOG_NOT_FOUND",),
    ),
    _Rule(
        DefinitionError,
        "the batch source does not exist",
        "{where}",
        "look at the name{catalog}",
        kinds=frozenset(
            (
                "NoSuchTableException",
                "NoSuchNamespaceException",
                "NoSuchDatabaseException",
                "NoSuchViewException",
            )
        ),
        states=("42S02", "42P01", "3D000", "3F000"),
        conditions=("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "PATH_NOT_FOUND"),
    ),
    _Rule(
        Unavailable,
        "the server of the batch source does not answer",
        "an answer of {where}",
        "look whether it runs and can be reached from the driver and from executors, and try again",
        kinds=frozenset(
            (
                *("SQLTransientException", "SQLNonTransientConnectionException", "SQLRecoverableException"),
                *(
                    "ConnectException",
                    "UnknownHostException",
                    "SocketTimeoutException",
                    "NoRouteToHostException",
                ),
            )
        ),
        states=("08",),
        reading=False,
    ),
    _Rule(
        Corrupted,
        "a file of the batch source cannot be read",
        "whole files of the format that the source names",
        "look at the file, and at `format`",
        conditions=("FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER", "FAILED_READ_FILE.FILE_NOT_EXIST"),
        kinds=frozenset(("NotFoundException",)),
    ),
    _Rule(
        DefinitionError,
        "the database refuses to read the batch source",
        "a table or view that the user may read, with columns that the driver can read: {where}",
        "look at `dbtable`, at `options` and at the user's grants",
        kinds=frozenset(("SQLException",)),
    ),
    _Rule(
        DefinitionError,
        "Spark cannot read the batch source with these options",
        "values that fit the source: {options}",
        "look at `options` and `columns`",
        kinds=frozenset(("AnalysisException", "IllegalArgumentException", "NumberFormatException")),
        reading=False,
    ),
)
# Of a job, only a database's own word is the source's: the object store has servers too.
_OF_DATABASE = frozenset(("SQLException",))


def causes_of(error: BaseException) -> tuple[Cause, ...]:
    """Return the chain of Java's exceptions, the outermost first; empty for an error that Java has no part
    in."""
    if isinstance(error, Py4JJavaError):
        java = error.java_exception
    elif isinstance(error, PySparkException):
        java = getattr(error, "_origin", None)
    else:
        return ()
    found: list[Cause] = []
    while java is not None and len(found) < _CAUSES_MAX:
        found.append(_cause(java))
        java = java.getCause()
    return tuple(found)


def _cause(java: Any) -> Cause:
    kinds = []
    above = java.getClass()
    while above is not None:
        kinds.append(above.getSimpleName())
        above = above.getSuperclass()
    members = dir(java)
    sql_state = next((java.getSQLState() for name in members if name == "getSQLState"), None) or ""
    condition = next((java.getCondition() for name in members if name == "getCondition"), None) or ""
    if (kinds[0], sql_state) == ("SQLException", "08001") and java.getCause() is None:
        kinds.insert(0, "NoDriver")  # of java.sql.DriverManager: no driver knows the URL
        sql_state = ""
    text = re.split(r"\n\s*(?:at |Driver stacktrace)", str(java.getMessage() or ""))[0]
    return Cause(tuple(kinds), text.strip()[:_TEXT_CHARS], sql_state, condition)


def explained(
    causes: Sequence[Cause], source: BatchSource, spark: str, *, opening: bool
) -> RtolapError | None:
    """Return what an exception means, None where no rule knows it.

    `spark`: its version. `opening`: the source was not open yet, so that whatever is wrong is of the source.
    """
    for rule in _RULES:
        for cause in causes:
            if rule.fits(cause) and (opening or rule.reading or not _OF_DATABASE.isdisjoint(cause.kinds)):
                named = _named(source, spark)
                return rule.error(
                    rule.what,
                    expected=rule.expected.format(**named),
                    found=_innermost(causes, cause),
                    action=f"{rule.action.format(**named)}. Nothing was changed",
                )
    return None


def _innermost(causes: Sequence[Cause], cause: Cause) -> str:
    """Return the text of a cause; that of the next ones where it has none."""
    texts = [each.text for each in causes[causes.index(cause) :] if each.text]
    return f"{cause.kinds[0]}: {texts[0] if texts else 'without a message'}"


def _named(source: BatchSource, spark: str) -> Mapping[str, str]:
    major = ".".join(spark.split(".")[:2])
    if source.format == "jdbc":
        database = database_of(source)
        driver = (
            f" {database.driver}" if database else f" for {':'.join(source.options['url'].split(':')[:2])}"
        )
        jar, where = f"a jar with the JDBC driver{driver}", f"table {source.options['dbtable']}"
    elif source.format == "iceberg":
        jar, where = f"Iceberg's runtime iceberg-spark-runtime-{major}_2.13", f"table {source.path}"
    else:
        jar, where = f"a jar that reads {source.path}", str(source.path)
    variables = ", ".join(f"{option} of variable {name}" for option, name in sorted(source.secrets.items()))
    return {
        "jar": jar,
        "where": where,
        "spark": major,
        "secrets": variables or "no secrets are named",
        "catalog": ", and at the settings `spark.sql.catalog.…` of its catalog"
        if source.format == "iceberg"
        else "",
        "options": ", ".join(f"{name} {value!r}" for name, value in sorted(source.options.items())) or "none",
    }


@contextmanager
def errors_of_source(source: BatchSource, spark: str, *, opening: bool) -> Iterator[None]:
    """Raise what Spark raises inside as errors that say what to do; unknown ones as they are."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        if isinstance(error, PythonException):  # of a task of ours
            raise
        known = explained(causes_of(error), source, spark, opening=opening)
        if known is None:
            raise
        raise known from error


def failure_text(error: Exception) -> str:
    """Return what an error says, without Java's stack traces."""
    causes = causes_of(error)
    if not causes or isinstance(error, PythonException):
        return error_text(error)
    said = dict.fromkeys(f"{cause.kinds[0]}: {cause.text}" for cause in causes if cause.text)
    return "; caused by ".join(said)[:ERROR_CHARS]


def without_secrets(text: str, secrets: Collection[str]) -> str:
    """Return the text with the values of secrets replaced."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        pattern = re.escape(secret)
        if len(secret) <= _WORD_CHARS_MAX:
            pattern = rf"(?<!\w){pattern}(?!\w)"
        text = re.sub(pattern, HIDDEN, text)
    return text
