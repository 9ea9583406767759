"""The process that unpacks one ORC body; `stripes` starts it.

A stripe is unpacked as a whole, and few bytes may stand for very many: the library bounds neither, so the
system does, for this process alone.

    argv      the body's descriptor, bytes that may be taken beyond what the program itself needs, bytes of
              one message
    stdout    length (8 bytes, little endian) and message of the file's schema; then an Arrow stream
    stdin     a line of JSON between both: names of the columns that are wanted
    stderr    what is wrong with the body, where the exit code is `DAMAGED`
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from typing import IO

import pyarrow as pa
import pyarrow.orc

DAMAGED, TOO_LARGE = 3, 4


def main() -> None:
    descriptor, memory_bytes, message_bytes = map(int, sys.argv[1:4])
    _bound(memory_bytes)
    try:
        with os.fdopen(descriptor, "rb") as body:
            _unpack(pa.PythonFile(body, mode="r"), sys.stdin.buffer, sys.stdout.buffer, message_bytes)
    except (MemoryError, pa.ArrowMemoryError):
        sys.exit(TOO_LARGE)
    except BrokenPipeError:
        os._exit(0)  # nobody wants the rest
    except (pa.ArrowException, OSError, ValueError) as error:
        print(str(error)[:1000], file=sys.stderr)
        sys.exit(DAMAGED)


def _bound(more_bytes: int) -> None:
    with open("/proc/self/statm") as sizes:
        mapped = int(sizes.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + more_bytes, mapped + more_bytes))


def _unpack(source: pa.NativeFile, requests: IO[bytes], answers: IO[bytes], message_bytes: int) -> None:
    file = pa.orc.ORCFile(source)
    message = file.schema.serialize().to_pybytes()
    answers.write(len(message).to_bytes(8, "little") + message)
    answers.flush()
    line = requests.readline()
    if not line:
        return  # nobody wants the rows
    names = json.loads(line)
    schema = pa.schema([file.schema.field(name) for name in names])
    with pa.ipc.new_stream(answers, schema) as stream:
        for number in range(file.nstripes):
            for piece in _pieces(file.read_stripe(number, columns=names).select(names), message_bytes):
                stream.write_batch(piece)
    answers.flush()


def _pieces(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield halves of halves, until each fits or is one row."""
    if batch.num_rows <= 1 or batch.nbytes <= bytes_max:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _pieces(batch.slice(0, middle), bytes_max)
    yield from _pieces(batch.slice(middle), bytes_max)


if __name__ == "__main__":
    main()
