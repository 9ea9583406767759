"""A table and a cube of prices by kind, as a user's file."""

from __future__ import annotations

from pathlib import Path

_DEFINITIONS = """\
kind: table
name: {name}_table
topic: {name}
time: {{column: ts, format: iso8601, zone: {zone}}}
columns:
  - {{name: ts, type: string}}
  - {{name: kind, type: string}}
  - {{name: price, type: "decimal(10,2)"}}
---
kind: cube
name: {name}
table: {name}_table
dimensions: [kind]
time_dimensions: [hour]
measures:
  - {{function: count}}
  - {{function: sum, column: price}}
segment: {{window: 1h, sliding_window: 1d, sliding_window_max: 2d}}
retention: {retention}
"""


def define_prices(
    folder: Path, name: str, *, zone: str = "UTC", retention: str = "{policy: FULL_BUILD}"
) -> Path:
    """Write the file `<name>.yaml` with cube `name` over topic `name`; `retention` as YAML."""
    path = folder / f"{name}.yaml"
    path.write_text(_DEFINITIONS.format(name=name, zone=zone, retention=retention))
    return path
