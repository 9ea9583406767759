"""Progress of a build on stdout, a line per step: `rtolap-progress: {json}`. Airflow's operator reads it."""

from __future__ import annotations

import msgspec

from rtolap.model.build_spec import BuildSpec


def report(event: str, spec: BuildSpec, **fields: object) -> None:
    """Report progress. `spec` is the build meant, or the first of the batch."""
    line = {"event": event, "cube": spec.cube, "segment": spec.segment, "build_id": spec.build_id, **fields}
    print(f"rtolap-progress: {msgspec.json.encode(line).decode()}", flush=True)
