"""Notes when the receiver of this process steps and answers.

All times are of `time.monotonic_ns`, which all processes of a machine share. A line a step that took in
records: begin, begin and end of its poll, the records, the swap of its state, end, processor time of the
thread, and the positions. A line a call of the Flight server: begin, end, processor time.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.process import ReceiverService
from rtolap.kafka.consumer import KafkaConsumer

WRITE_S = 0.5
STEP, CALL = "step", "call"


def begin(name: str) -> None:
    """Have this process note its steps and calls from now on. `name`: of the file."""
    path = Path(name)
    lines: list[tuple[Any, ...]] = []
    now = threading.local()  # the step of this thread: its poll, and its swap behind that
    poll, step, swap, answer = (
        KafkaConsumer.poll,
        CubeReceiver.step,
        CubeReceiver._swap,
        ReceiverService.query,
    )

    def noted_poll(self: Any, *given: Any, **named: Any) -> Any:
        begun_ns = time.monotonic_ns()
        batch = poll(self, *given, **named)
        now.poll = (begun_ns, time.monotonic_ns(), len(batch))
        return batch

    def noted_swap(self: Any, state: Any) -> None:
        swap(self, state)
        if now.__dict__.get("poll") and not now.__dict__.get("swapped"):
            now.swapped = time.monotonic_ns()

    def noted_step(self: Any, *given: Any, **named: Any) -> bool:
        now.poll, now.swapped = None, None
        begun_ns, used_ns = time.monotonic_ns(), time.thread_time_ns()
        worked = step(self, *given, **named)
        if worked and now.poll is not None:
            ended_ns = time.monotonic_ns()
            taken_ns = time.thread_time_ns() - used_ns
            swapped_ns = now.swapped or ended_ns
            line = (STEP, begun_ns, *now.poll, swapped_ns, ended_ns, taken_ns, self.state.positions)
            lines.append(line)
        return worked

    def noted_query(self: Any, query: Any) -> Any:
        begun_ns, used_ns = time.monotonic_ns(), time.thread_time_ns()
        table = answer(self, query)
        lines.append((CALL, begun_ns, time.monotonic_ns(), time.thread_time_ns() - used_ns))
        return table

    KafkaConsumer.poll, CubeReceiver.step = noted_poll, noted_step  # type: ignore[method-assign]
    CubeReceiver._swap, ReceiverService.query = noted_swap, noted_query  # type: ignore[method-assign]

    def write() -> None:
        while True:
            time.sleep(WRITE_S)
            count = len(lines)
            with path.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines[:count])
            del lines[:count]

    threading.Thread(target=write, daemon=True).start()
