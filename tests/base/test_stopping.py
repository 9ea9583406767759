"""A process hears a signal whichever of its threads the system hands it to."""

from __future__ import annotations

import subprocess
import sys
import textwrap

SCRIPT = """
    import signal, threading
    from rtolap.base.stopping import stop_event, wait_awake

    stopping = stop_event()

    def take_it() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        threading.Event().wait(60)  # and go on

    threading.Timer(0.3, take_it).start()
    wait_awake(stopping)
    print("told to stop", flush=True)
    signal.raise_signal(signal.SIGKILL)
"""


def test_a_signal_that_another_thread_takes_ends_the_waiting() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.stdout == "told to stop\n", done.stderr
