"""The permissions of Spark jobs on a host, beyond those of every agent: a YAML file of its operator.

    settings:                                          name → the whole of its value, as a regular expression
      spark.hadoop.fs.s3a.endpoint: https://s3[.]example[.]org
      spark.executor.extraJavaOptions: -XX:[+]UseZGC
    jars:                                              each as a request names it
      - /opt/jars/hadoop-aws.jar
      - hdfs:///jars/own-functions.jar
    sources:                                           of batches: a folder with all below it, a file, an
      - file:///data/exports/                          Iceberg table, or the URL of a database
      - jdbc:postgresql://db.example.org/sales

Whoever may start processes through the agent chooses among these values and no others. A setting can name
code, files and servers, so a pattern should say the whole of what is meant. What the agent itself sets, as
the address at which drivers listen, stays as it is whatever the file allows.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from rtolap.base.decoding import convert
from rtolap.base.errors import DefinitionError
from rtolap.base.operator_files import read_operator_yaml

_WHAT = "what Spark may be told on this host"
_SETTING = re.compile(r"spark(\.[A-Za-z0-9_-]+)+")
_JAR = re.compile(r"[^,\s]+\.jar")


class SparkAllowed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings, jars and sources of batches that an operator allows.

    Attributes:
        settings: name of a setting → pattern of its whole value.
        jars: paths and URIs.
        sources: those that end with a slash allow all below them, others themselves.
    """

    settings: dict[str, str] = {}
    jars: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def allows_source(self, where: str) -> bool:
        """Return True where a batch may read this path, table or URL."""
        if ".." in where.split("/"):
            return False
        return any(where == each or (each.endswith("/") and where.startswith(each)) for each in self.sources)

    def allows_setting(self, name: str, value: str) -> bool:
        """Return True where the operator allows this value. None has control characters."""
        pattern = self.settings.get(name)
        return pattern is not None and value.isprintable() and re.fullmatch(pattern, value) is not None

    def allows_jars(self, value: str) -> bool:
        """Return True where each of these comma-separated jars is allowed."""
        return all(jar in self.jars for jar in value.split(","))


def read_spark_allowed(path: Path | None) -> SparkAllowed:
    """Return what the file allows, nothing without a file.

    Raises DefinitionError for a file that cannot be read, that others may write to, or that does not fit.
    """
    if path is None:
        return SparkAllowed()
    try:
        allowed = convert(read_operator_yaml(path, _WHAT) or {}, SparkAllowed)
    except msgspec.ValidationError as error:
        raise DefinitionError(
            f"{path} does not say {_WHAT}",
            expected="`settings`, patterns by name, and `jars` and `sources`, lists",
            found=error,
        ) from None
    for name, pattern in allowed.settings.items():
        if not _SETTING.fullmatch(name):
            raise DefinitionError(
                f"{path} allows what is no setting of Spark", expected="spark.….…", found=repr(name)
            )
        try:
            re.compile(pattern)
        except re.error as error:
            raise DefinitionError(
                f"{path}: the pattern of {name} is none", expected="a regular expression", found=error
            ) from None
    for jar in allowed.jars:
        if not _JAR.fullmatch(jar):
            raise DefinitionError(
                f"{path} allows what is no jar",
                expected="a path or URI that ends with .jar, without commas and spaces",
                found=repr(jar),
            )
    return allowed
