"""`rtolap watermark` shows how far applications are and which hosts and units hold them back, draws both, and
lets a person act on it."""

from __future__ import annotations

import typer

from rtolap.cli.watermark import history as watermark_history
from rtolap.cli.watermark import hosts as watermark_hosts
from rtolap.cli.watermark import topology as watermark_topology
from rtolap.cli.watermark import windows as watermark_windows
from rtolap.cli.watermark.show import show

app = typer.Typer(no_args_is_help=True, help="Watermarks of applications.")

for _command in (
    show,
    watermark_hosts.hosts,
    watermark_hosts.units,
    watermark_topology.topology,
    watermark_windows.explain,
    watermark_windows.approve,
    watermark_history.history,
    watermark_history.plot,
    watermark_hosts.drain,
    watermark_hosts.remove,
):
    app.command()(_command)
