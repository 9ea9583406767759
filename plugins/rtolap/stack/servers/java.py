"""Common parts of the two Java servers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

LOG4J = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
"""

# One thread for collection and only the first compiler: small, quick to start, fast enough for one machine.
LEAN_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def write_log4j(folder: Path, level: str) -> Path:
    path = folder / "log4j2.properties"
    path.write_text(LOG4J.format(level=level))
    return path


def class_path(jars: Iterable[Path]) -> str:
    return os.pathsep.join(str(jar) for jar in jars)


def properties(values: dict[str, object]) -> str:
    """A Java properties file; values hold neither backslashes nor line ends."""
    return "".join(f"{key}={value}\n" for key, value in values.items())
