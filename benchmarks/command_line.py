"""The command line of benchmarks whose work runs in processes of its own."""

from __future__ import annotations

import argparse


def new_parser(description: str | None, *, worker: tuple[str, str]) -> argparse.ArgumentParser:
    """Return a parser with `--json`, and `--worker` with these two values, by which a benchmark calls
    itself."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0] if description else None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", nargs=2, metavar=worker, help=argparse.SUPPRESS)
    return parser
