"""The command `rtolap`: entry points and wiring, no logic of its own.

One module per group of commands, each with a typer application `app`; `main.py` mounts them. Groups of many
commands are rooms of their own: `fleet`, `sep`, `loader`, `watermark`, `cubes` for segments, builds and
sizes, `local` for the stack and the demonstration, and `upkeep` for backups.
Every command prints people's output through `output.py`, takes `--json`, and ends with

    0   done
    1   an rtolap error: its message on stderr, no traceback
    2   wrong usage
    3   `stack status` only: a part is down
"""
