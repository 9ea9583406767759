"""`rtolap watermark`: how far applications are, who holds them back, what to do about it, and pictures."""

from __future__ import annotations

import typer

from rtolap.cli import watermark_history, watermark_hosts, watermark_topology, watermark_windows
from rtolap.cli.watermark_show import show

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
