"""The receivers' answers over HTTP in services that run: see `switching`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.hooks import Hook


def hook(way: str, folder: Path) -> Hook:
    """Return the hook that services have to be started with. `way`: httpx or http.client."""
    folder.mkdir()
    (folder / "way").write_text(way)
    return Hook("benchmarks.answer_transport.switched.switching", str(folder), ("receiver", "query"))
