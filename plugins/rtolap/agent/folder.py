"""The agent's folder: `state.json`, `logs/`, and `agent.lock`, which keeps a second agent out."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rtolap.base.errors import Refused


class AgentFolder:
    """Held from its making until `close`, or until the process ends. Raises Refused when another holds it."""

    def __init__(self, root: Path) -> None:
        self.logs = root / "logs"
        self.state_file = root / "state.json"
        self.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock_fd = os.open(root / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise Refused(
                f"another agent holds {root}",
                expected="one agent per host and folder",
                action="stop the other one, or give this one another RTOLAP_DATA_DIR",
            ) from None

    def close(self) -> None:
        os.close(self._lock_fd)
