"""Figures that can be measured again: `python -m benchmarks.<name>`; with `--json` the last line is an object.

Every figure is a ratio to a named limit or peer in the same run, so that it means the same on another machine.
"""
