"""`rtolap sep plot`: a picture of lag by time, of the looks that `rtolap sep status --record` has kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from rtolap.cli.output import JsonOption, print_json, success, write_file
from rtolap.draw.figure import picture_format
from rtolap.draw.replication_lag import LagLine, draw_replication_lag
from rtolap.sep.status.history import lag_by_peer, read_looks


def plot(
    looks: Annotated[Path, typer.Argument(help="File that `status --record` has kept looks in.")],
    picture: Annotated[Path, typer.Argument(help="Where to write it: a name that ends in .svg or .png.")],
    peer: Annotated[list[str] | None, typer.Option(help="Only this peer; may be repeated.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw how far behind peers were: the furthest queue of each, and the median of its queues."""
    form = picture_format(picture)
    lines = [
        LagLine(
            lag.peer,
            np.asarray(lag.at_ms, np.float64),
            np.asarray(lag.worst_ms, np.float64),
            np.asarray(lag.median_ms, np.float64),
        )
        for lag in lag_by_peer(read_looks(looks), peer or ())
    ]
    write_file(picture, draw_replication_lag(lines, form))
    if as_json:
        print_json({"picture": picture, "peers": [line.peer for line in lines]})
    else:
        success(f"{picture}: {len(lines)} peers")
