"""Many processes at once: started as soon as those they need answer, stopped side by side, swept up."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import psutil

from rtolap.base.errors import ProcessFailed, RtolapError
from rtolap.base.pids import environment_of, lives
from rtolap.stack.components import needed_first
from rtolap.stack.environment import STACK_MARK
from rtolap.stack.layout import StackLayout
from rtolap.stack.process import ManagedProcess

# (component, phase, note); phases: waiting, starting, ready, failed, skipped, stopping, stopped
Progress = Callable[[str, str, str], None]
_POLL_S = 0.05


def start_all(processes: Mapping[str, ManagedProcess], progress: Progress) -> dict[str, RtolapError]:
    """Start all in threads, each as soon as what it needs is ready. Returns the failures by name."""
    for name, need in needed_first(set(processes)).items():
        progress(name, "waiting", ", ".join(sorted(need)))
    with ThreadPoolExecutor(len(processes)) as pool:
        try:
            return _start_with(pool, processes, progress)
        except BaseException:  # an interrupt above all: the threads must not wait on
            for process in processes.values():
                process.cancel()
            raise


def _start_with(
    pool: ThreadPoolExecutor, processes: Mapping[str, ManagedProcess], progress: Progress
) -> dict[str, RtolapError]:
    needs = needed_first(set(processes))
    ready: set[str] = set()
    failed: dict[str, RtolapError] = {}
    running: dict[Future[None], str] = {}
    waiting = list(processes)
    while waiting or running:
        for name in list(waiting):
            broken = sorted(needs[name] & failed.keys())
            if broken:
                waiting.remove(name)
                failed[name] = ProcessFailed(f"{name} was not started", found=f"{broken[0]} failed")
                progress(name, "skipped", f"needs {broken[0]}")
            elif needs[name] <= ready:
                waiting.remove(name)
                already = processes[name].missing() is None
                progress(name, "starting", "runs already" if already else "")
                running[pool.submit(processes[name].start)] = name
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            name = running.pop(future)
            error = future.exception()
            if error is None:
                ready.add(name)
                progress(name, "ready", processes[name].address)
            elif isinstance(error, RtolapError):
                failed[name] = error
                progress(name, "failed", error.message)
            else:
                raise error
    return failed


def stop_all(processes: Mapping[str, ManagedProcess], names: Collection[str], progress: Progress) -> None:
    chosen = [processes[name] for name in names if name in processes]

    def stop(process: ManagedProcess) -> None:
        progress(process.name, "stopping", "")
        process.stop()
        progress(process.name, "stopped", "")

    with ThreadPoolExecutor(max(1, len(chosen))) as pool:
        list(pool.map(stop, chosen))


def marked_processes(layout: StackLayout, spare: Collection[int] = ()) -> list[psutil.Process]:
    """Return the living processes that descend from the stack's parts, except those of the sessions to
    spare."""
    found = []
    for process in psutil.process_iter():
        try:
            if environment_of(process).get(STACK_MARK) == str(layout.root) and _session(process) not in spare:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
            continue  # it ended meanwhile, or is somebody else's
    return found


def sweep(layout: StackLayout, spare: Collection[int], timeout_s: float = 20.0) -> int:
    """Send SIGTERM, a grace time later SIGKILL, and return the number of processes.

    They are looked for until none is left: a process may start another one between the look and the signal.
    """
    met: set[psutil.Process] = set()
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline_s = time.monotonic() + timeout_s
        told: set[psutil.Process] = set()
        while processes := [process for process in marked_processes(layout, spare) if lives(process)]:
            met.update(processes)
            for process in processes:
                if process not in told:
                    _send(process, number)
            told.update(processes)
            if time.monotonic() > deadline_s:
                break
            time.sleep(_POLL_S)
        else:
            break
    return len(met)


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def _session(process: psutil.Process) -> int:
    return os.getsid(process.pid)
