"""`rtolap support-bundle` collects what somebody needs who helps from afar, without secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rtolap.base.clock import SystemClock
from rtolap.base.errors import NotFound
from rtolap.base.settings import Settings
from rtolap.cli.output import JsonOption, console, print_json, success, warn
from rtolap.cli.progress import progress_of
from rtolap.doctor.bundle.sources import LOG_BYTES_MAX, Part, collect
from rtolap.doctor.examination import LOOK_S_MAX
from rtolap.model.quantities import instant_text
from rtolap.protocols.loader.messages import LoaderList
from rtolap.stack.layout import DEFAULT_DIR, StackLayout
from rtolap.stored.loader.operations import job_access

app = typer.Typer()


@app.command("support-bundle")
def support_bundle(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write, which must not exist.")
    ] = None,
    log_bytes_max: Annotated[
        int, typer.Option("--log-bytes-max", min=0, help="Bytes of the end of each log.")
    ] = LOG_BYTES_MAX,
    each_s: Annotated[float, typer.Option(min=0.1, help="Seconds for each look of the doctor.")] = LOOK_S_MAX,
    as_json: JsonOption = False,
) -> None:
    """Collect findings, versions, settings, the cluster's state, metrics and logs in one archive, with
    secrets hidden. What could not be had is named in its manifest, and is no failure."""
    settings = Settings()
    path = output or _file_name(SystemClock().now_ms())
    with progress_of("collecting"):
        archive = collect(
            settings,
            more=[Part("cluster/loaders.json", lambda: _loaders(settings))],
            log_folders=_stack_log_folders(),
            log_bytes_max=log_bytes_max,
            each_s=each_s,
        )
        archive.write(path)
    if as_json:
        print_json({"file": path, "size_bytes": path.stat().st_size, "entries": archive.entries})
        return
    for entry in archive.entries:
        if entry.outcome == "missing":
            warn(f"{entry.name}: {entry.reason}")
    included = sum(entry.outcome != "missing" for entry in archive.entries)
    success(f"{path}: {included} parts, {len(archive.entries) - included} could not be had")
    console.print("Read it before you send it: it names hosts, topics and columns.")


def _file_name(now_ms: int) -> Path:
    stamp = instant_text(now_ms).translate({ord(" "): "T", ord(":"): None, ord("-"): None})
    return Path(f"rtolap-support-{stamp}.tar.gz")


def _loaders(settings: Settings) -> LoaderList:
    file = settings.ledger.removeprefix("sqlite:///")
    if file != settings.ledger and not Path(file).is_file():
        raise NotFound(f"there is no ledger {file}")  # to open it would make one
    with job_access(settings) as access:
        return LoaderList(tuple(access.status(job) for job in access.jobs.all()))


def _stack_log_folders() -> list[Path]:
    """Return the folders of logs of the local stack of this folder, or of one above it."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        layout = StackLayout(folder / DEFAULT_DIR)
        if layout.state_file.is_file():
            return sorted((layout.root / "run").glob("*/"))
    return []
