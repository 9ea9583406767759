"""Cubes are rolled-up event streams. Receivers hold recent events, and Spark builds complete segments.

`format` is what both sides read and write, `receiver` consumes and answers, `build` runs in a Spark driver.
`sizing` predicts what cuboids will take, and which further ones would pay.
"""
