"""The standard streams of a command: there in any case, and an RtolapError where output cannot be written."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import IO, TypeVar

from rtolap.base.errors import RtolapError

T = TypeVar("T")


class StandardOutput(io.TextIOWrapper):
    """Standard output that raises RtolapError, once, where it cannot be written: the disk is full, say.

    What is written afterwards is dropped. A reader that went away remains a BrokenPipeError. Characters that
    the encoding lacks are written as escapes, as on stderr.
    """

    _is_lost = False

    def write(self, text: str, /) -> int:
        return self._written(lambda: super(StandardOutput, self).write(text), len(text))

    def flush(self) -> None:
        self._written(super().flush, None)

    def _written(self, work: Callable[[], T], dropped: T) -> T:
        if self._is_lost:
            return dropped
        try:
            return work()
        except BrokenPipeError:
            raise
        except OSError as error:
            self._is_lost = True
            raise unwritten(error) from error


def unwritten(error: OSError) -> RtolapError:
    """Return the error of output that could not be written."""
    return RtolapError("the output cannot be written", found=error.strerror or str(error))


def set_up_standard_streams() -> None:
    """Open those that are closed on the null device, and make `sys.stdout` a `StandardOutput`.

    Without the first, a closed number would be that of the next file or socket that is opened, and what a
    library writes on stderr would be in it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
    sys.stdin = sys.stdin or io.TextIOWrapper(_null_device("rb"))
    sys.stderr = sys.stderr or io.TextIOWrapper(_null_device("wb"))
    if sys.stdout is None:
        sys.stdout = StandardOutput(_null_device("wb"))
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = StandardOutput(
            sys.stdout.buffer,
            encoding=sys.stdout.encoding,
            errors="backslashreplace",
            line_buffering=sys.stdout.line_buffering,
        )


def _null_device(mode: str) -> IO[bytes]:
    return open(os.devnull, mode)
