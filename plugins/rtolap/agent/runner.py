"""Runs one command and leaves its exit code in a file, so that it outlives the agent that started it.

`python runner.py EXIT_FILE COMMAND [ARGUMENT…]`, with the standard library only: it is started by path, in
isolated mode, and stays beside the command. A signal to the group reaches the command itself; the runner
only waits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def run(exit_file: str, command: list[str]) -> int:
    """Run the command, write its exit code to `exit_file` and return it. A signal's is negative."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _keep_waiting)
    try:
        code = subprocess.Popen(command).wait()  # handlers, unlike ignored signals, are not inherited
    except OSError as error:
        print(f"{command[0]} cannot be started: {error}", file=sys.stderr, flush=True)
        code = 127
    temporary = exit_file + ".tmp"
    with open(temporary, "w") as file:
        file.write(str(code))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, exit_file)
    return code


def _keep_waiting(_number: int, _frame: object) -> None:
    """Go on waiting. The command got the same signal, and its end is what counts."""


if __name__ == "__main__":
    result = run(sys.argv[1], sys.argv[2:])
    sys.exit(result if result >= 0 else 128 - result)
