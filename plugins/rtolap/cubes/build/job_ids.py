"""Ids of a Spark job: in the log of its driver, and in that of the Python which its tasks run.

The driver knows its builds, its merge or its batch by their specs. Ids of the request that asked for them
come by the environment, or with the arguments where the driver has waited for the job. Tasks run in other
processes, perhaps on other hosts, which several jobs share; so ids go there with the function that they run.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any

from rtolap.base.ids import bound, of_parent, received, sent
from rtolap.base.logs import handed_over, write_logs_of_child
from rtolap.base.spans import parent_of, start_spans, under
from rtolap.model.build_spec import BuildSpec

SERVICE = "rtolap-spark"  # the name under which spans of drivers are sent

log = logging.getLogger(__name__)


@contextmanager
def job_of_parent() -> Iterator[None]:
    """Write the driver's log and send its spans as its environment says, and work for the ids of who has
    started it.

    Py4J would say each call into the JVM at DEBUG, with the secrets that are handed over there.
    """
    write_logs_of_child(os.environ)
    logging.getLogger("py4j").setLevel(logging.INFO)
    start_spans(SERVICE)
    with bound(of_parent(os.environ)), under(parent_of(os.environ)):
        yield


def builds(batch: Sequence[BuildSpec]) -> AbstractContextManager[None]:
    """Work for a batch of builds: for their cube, and for a build that is alone by its own ids, too."""
    if len(batch) == 1:
        return bound(cube=batch[0].cube, segment=batch[0].segment, build=batch[0].build_id)
    return bound(cube=batch[0].cube)


class InTask:
    """A function that tasks of Spark call: there it works for the ids under which it was made here."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._ids = sent()
        self._logs = handed_over()

    def __call__(self, *arguments: Any) -> Any:
        write_logs_of_child(self._logs)
        with bound(received(self._ids)):
            log.debug("%s in a task", _name(self._function))
            made = self._function(*arguments)
            return _stepped(made) if isinstance(made, Iterator) else made


def _name(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _stepped(made: Iterator[Any]) -> Iterator[Any]:
    """Return the iterator, each of whose steps works for the ids of now: it is read after this call."""
    context = copy_context()

    def steps() -> Iterator[Any]:
        while True:
            try:
                yield context.run(next, made)
            except StopIteration:
                return

    return steps()
