"""A history in which host `b` of the source stands still for a while, and then a unit of the operator."""

from __future__ import annotations

from rtolap.protocols.watermark.messages import (
    ApplicationHistory,
    ApprovalInfo,
    HostTrace,
    LevelHistory,
    UnitTrace,
)

BEGAN_MS = 1_000_000_000_000
SAMPLES = 600
STALLED = range(100, 400)  # samples
WORKING = range(450, 500)
UNIT = "worker-1/3"


def stalled_history(host: str = "b") -> ApplicationHistory:
    """Return a history with a sample a second; `c` of the hosts is never seen, `a` is always further than the
    watermark."""
    at_ms = [BEGAN_MS + at * 1000 for at in range(SAMPLES)]
    input_ms = [ms - 2000 for ms in at_ms]
    input_ms[STALLED.start : STALLED.stop] = [at_ms[STALLED.start] - 2000] * len(STALLED)
    output_ms = list(input_ms)
    output_ms[WORKING.start : WORKING.stop] = [input_ms[WORKING.start]] * len(WORKING)
    every = tuple(range(SAMPLES))
    source = LevelHistory(
        role="source",
        input_ms=tuple(input_ms),
        output_ms=tuple(input_ms),
        holding=(2,) * SAMPLES,
        hosts=(
            HostTrace(host="a", at=every, latest_ms=tuple(ms - 1000 for ms in at_ms)),
            HostTrace(host=host, at=every, latest_ms=tuple(input_ms)),
            HostTrace(host="c", at=every, latest_ms=(None,) * SAMPLES),
        ),
    )
    operator = LevelHistory(
        role="operator",
        input_ms=tuple(input_ms),
        output_ms=tuple(output_ms),
        holding=(0,) * SAMPLES,
        units=(
            UnitTrace(
                processor="worker-1",
                key_group=3,
                at=tuple(WORKING),
                oldest_work_ms=(input_ms[WORKING.start],) * len(WORKING),
            ),
        ),
    )
    return ApplicationHistory(
        application="logs",
        epoch=1,
        now_ms=at_ms[-1],
        since_ms=at_ms[0],
        at_ms=tuple(at_ms),
        global_ms=tuple(output_ms),
        levels={"web": source, "sessions": operator},
        approvals=(
            ApprovalInfo(
                until_ms=at_ms[160], by="ann", reason="b is being repaired", at_ms=at_ms[STALLED.start + 200]
            ),
        ),
    )
