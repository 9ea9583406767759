"""Jars with which Spark reads databases, fetched from Maven Central as those of the stack are."""

from __future__ import annotations

from pathlib import Path

from rtolap.stack.artifacts import fetch_jars
from rtolap.stack.jar_checksums import listed

_IVY = """<ivy-module version="2.0"><info organisation="local" module="batch-sources"/>
<configurations><conf name="jdbc"/></configurations><dependencies>
<dependency org="org.mariadb.jdbc" name="mariadb-java-client" rev="3.5.3" transitive="false"
 conf="jdbc-&gt;default"/>
</dependencies></ivy-module>
"""
_CHECKSUMS = Path(__file__).with_name("source_jars.sha256")


def mariadb_jar() -> Path:
    """Return MariaDB's JDBC driver, fetched first when the cache lacks it."""
    folder = fetch_jars(_IVY, ("jdbc",), "the sources of batches", checksums=listed(_CHECKSUMS))
    (jar,) = (folder / "jdbc").glob("*.jar")
    return jar
