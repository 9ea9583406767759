"""Figures that can be measured again: `python -m benchmarks.<name>`; `--json` ends with one object.

Every figure is a ratio to a named limit or peer in the same run, so that it means the same elsewhere.
"""
