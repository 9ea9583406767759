"""Common parts of the Java programs of a stack: files of their configuration, flags, archives of classes.

A Java process reads, checks and links thousands of classes, the same ones at each start. Java can write them
to an archive as a process ends, and map that in from then on (JEP 350): each starts in about half the
processor time. An archive belongs to one java and one class path: where either is another one, there is
another archive, or none, and programs start without.

    <cache>/java/archives/<program>-<digest of java and class path>.jsa

`class_recording` makes them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from rtolap.stack.artifacts import cache_dir, find_java, pyspark_jars

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
# An archive that does not fit is left aside, and nobody need be warned of it.
_QUIETLY = "-Xlog:cds*=error"


def write_log4j(folder: Path, level: str) -> Path:
    path = folder / "log4j2.properties"
    path.write_text(LOG4J.format(level=level))
    return path


def class_path(jars: Iterable[Path]) -> str:
    return os.pathsep.join(str(jar) for jar in jars)


def properties(values: dict[str, object]) -> str:
    """Return a Java properties file. Java reads it as Latin-1: whatever is not ASCII is escaped."""
    return "".join(f"{key}={_escaped(str(value))}\n" for key, value in values.items())


def _escaped(text: str) -> str:
    return "".join(letter if " " <= letter <= "~" and letter != "\\" else _units(letter) for letter in text)


def _units(letter: str) -> str:
    units = letter.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def hadoop_uri(path: Path) -> str:
    """Return a local path as Hadoop reads it: unlike in other URIs, a space or `%` stands for itself."""
    return f"file://{path}"


def option_string(flags: Iterable[str]) -> str:
    """Return flags of java in one text, as Spark takes it apart: those with spaces are quoted."""
    return " ".join(f'"{flag}"' if " " in flag else flag for flag in flags)


def archive_path(program: str, java: str, class_path: Sequence[Path]) -> Path:
    """Return the path at which the archive of this java and these jars is or would be."""
    digest = hashlib.sha256(os.path.realpath(java).encode())
    for path in (Path(os.path.realpath(java)), *class_path):
        known = path.stat()
        digest.update(f"{path} {known.st_size} {known.st_mtime_ns}\n".encode())
    return cache_dir() / "java" / "archives" / f"{program}-{digest.hexdigest()[:16]}.jsa"


def archive_flags(program: str, java: str, class_path: Sequence[Path]) -> tuple[str, ...]:
    """Return the flags with which java uses the archive; none where there is no archive."""
    archive = archive_path(program, java, class_path)
    return (f"-XX:SharedArchiveFile={archive}", _QUIETLY) if archive.is_file() else ()


def spark_class_path() -> tuple[Path, ...]:
    """Return the jars of pyspark, as its launcher puts them on the class path."""
    return tuple(sorted(pyspark_jars().glob("*.jar")))


def spark_submit_options() -> str:
    """Return `SPARK_SUBMIT_OPTS` of builds on one machine: a few thousand events are over before the
    optimising compiler has paid for itself."""
    return option_string((*LEAN_FLAGS, *archive_flags("spark", find_java(), spark_class_path())))
