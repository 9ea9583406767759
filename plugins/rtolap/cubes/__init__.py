"""Cubes: rolled-up event streams. Receivers hold what is recent, Spark builds what is complete.

`format` is what both sides read and write, `receiver` consumes and answers, `build` runs in a Spark driver.
"""
