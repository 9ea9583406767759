"""Ids of a Spark job in the lines of Spark's own JVMs, beside those of its Python (see `job_ids`).

    driver      a property of its whole JVM, which has one job at a time: lines of all threads show it
    executors   properties of Spark's jobs (`mdc.NAME`), which are in the MDC of the thread that runs a task

The driver's lines are laid out here where Spark's own default says how they look. A site that has a
log4j2.properties of its own keeps it, and shows the ids by `$${sys:rtolap.ids:-}`. Executors in processes of
their own follow the log4j2 of their host: `%X{mdc.build}` in a pattern, or all of them as JSON with
`spark.log.structuredLogging.enabled=true`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from rtolap.base.ids import ids
from rtolap.base.logs import is_json

T = TypeVar("T")
log = logging.getLogger(__name__)

PROPERTY = "rtolap.ids"
MDC = "mdc."  # Spark puts properties that begin so into the MDC of its tasks
_SPARKS_OWN = "%d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex"  # of log4j2-defaults.properties in Spark's jars
_SHOWN = f"$${{sys:{PROPERTY}:-}}"  # two signs: looked up anew for each line
_TEXT = f"%d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m{_SHOWN}%n%ex"
_JSON = (
    '{"at": "%d{yyyy-MM-dd\'T\'HH:mm:ss.SSS}{UTC}+00:00", "level": "%p", "logger": "%c", '
    f'"message": "%enc{{%m}}{{JSON}}"{_SHOWN}'
    '%notEmpty{, "error": "%enc{%ex}{JSON}"}}%n'
)


def lay_out_lines(context: SparkContext) -> None:
    """Have the driver's JVM write its lines as our Python does, with the ids, if Spark's default is in force.

    Its level becomes that of Spark's default; `SparkContext.setLogLevel` comes after it.
    """
    with _lenient():
        _lay_out(context)


def _lay_out(context: SparkContext) -> None:
    jvm: Any = context._jvm
    log4j = jvm.org.apache.logging.log4j
    current = log4j.LogManager.getContext(False).getConfiguration()
    patterns = [_pattern_of(each) for each in current.getAppenders().values()]
    if patterns != [_SPARKS_OWN]:
        return
    makers = log4j.core.config.builder.api.ConfigurationBuilderFactory
    builder = makers.newConfigurationBuilder()
    layout = builder.newLayout("PatternLayout").addAttribute("pattern", pattern_of(os.environ))
    layout.addAttribute("alwaysWriteExceptions", False)  # the pattern says where
    console = builder.newAppender("console", "Console").addAttribute("target", "SYSTEM_ERR").add(layout)
    root = builder.newRootLogger(log4j.Level.INFO).add(builder.newAppenderRef("console"))
    log4j.core.config.Configurator.reconfigure(builder.add(console).add(root).build())


def pattern_of(environment: Mapping[str, str]) -> str:
    """Return the pattern of a JVM's lines, in the format of the lines of Python."""
    return _JSON if is_json(environment) else _TEXT


def shown(known: Mapping[str, str], *, as_json: bool) -> str:
    """Return what stands behind the message of a line: ids are of plain characters, see `base.ids`."""
    if not known:
        return ""
    if as_json:
        return "".join(f", {json.dumps(name)}: {json.dumps(value)}" for name, value in known.items())
    return f" [{' '.join(f'{name}={value}' for name, value in known.items())}]"


@contextmanager
def told(spark: SparkSession) -> Iterator[None]:
    """Have the JVM's lines name the ids of this thread; afterwards those that they named before."""
    before = _Named(None, {})
    with _lenient():
        before = _named(spark.sparkContext)
    tell(spark)
    try:
        yield
    finally:
        with _lenient():
            for name in ids().keys() - before.of_tasks.keys():
                _put(spark.sparkContext, name, None)  # it became known meanwhile
            _name(spark.sparkContext, before)


def tell(spark: SparkSession) -> None:
    """Have the JVM's lines name the ids of this thread, some of which have become known just now."""
    known = dict(ids())
    with _lenient():
        _name(spark.sparkContext, _Named(shown(known, as_json=is_json(os.environ)), dict(known)))


class _Named(NamedTuple):
    """The ids that lines name: those of the driver as one text, those of tasks by name."""

    of_driver: str | None
    of_tasks: dict[str, str | None]


def _named(context: SparkContext) -> _Named:
    of_tasks: dict[str, str | None] = {name: context.getLocalProperty(f"{MDC}{name}") for name in ids()}
    return _Named(_system(context).getProperty(PROPERTY), of_tasks)


def _name(context: SparkContext, named: _Named) -> None:
    if named.of_driver is None:
        _system(context).clearProperty(PROPERTY)
    else:
        _system(context).setProperty(PROPERTY, named.of_driver)
    for name, value in named.of_tasks.items():
        _put(context, name, value)


@contextmanager
def _lenient() -> Iterator[None]:
    """Go on where the JVM is gone: a build fails by itself then, and says so."""
    try:
        yield
    except (Py4JError, OSError) as error:
        log.warning("lines of Spark's JVM do not name their build: %s", error)


def in_thread(spark: SparkSession, function: Callable[..., T]) -> Callable[..., T]:
    """Return the function, whose Spark jobs name the ids of its caller in whatever thread it is called."""
    context, known = spark.sparkContext, dict(ids())

    def run(*arguments: Any) -> T:
        with _lenient():
            for name, value in known.items():
                _put(context, name, value)
        return function(*arguments)

    return run


def _put(context: SparkContext, name: str, value: str | None) -> None:
    """Set a property of the jobs of this thread; None takes it away, which its signature does not say."""
    context.setLocalProperty(f"{MDC}{name}", value)  # type: ignore[arg-type]


def _system(context: SparkContext) -> Any:
    jvm: Any = context._jvm
    return jvm.java.lang.System


def _pattern_of(appender: Any) -> str:
    layout = appender.getLayout()
    has_pattern = layout is not None and layout.getClass().getSimpleName() == "PatternLayout"
    return str(layout.getConversionPattern()) if has_pattern else ""
