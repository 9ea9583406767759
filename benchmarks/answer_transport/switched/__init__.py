"""The receivers' answers over HTTP in services that run: see `sitecustomize`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.answer_transport.switched.sitecustomize import FOLDER_VARIABLE

ROOT = Path(__file__).resolve().parents[3]


def environment(way: str, folder: Path) -> dict[str, str]:
    """Return what the services have to be started with. `way`: httpx or http.client."""
    folder.mkdir()
    (folder / "way").write_text(way)
    path = f"{Path(__file__).parent}:{ROOT}"
    return {FOLDER_VARIABLE: str(folder), "PYTHONPATH": path}
