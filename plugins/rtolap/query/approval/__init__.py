"""Allow-lists for what a statement may hold on its way to the embedded engine.

| when | module | bounds or allows |
|---|---|---|
| before parsing | `bounds` | bytes, nesting, the number of words: one linear pass |
| after parsing | `nodes` | kinds of nodes, names of functions, words (units, modifiers) |
| before the engine runs a text | `engine_tree` | nodes, functions, types, relations of the engine's tree |

The last one decides: whatever a rule or a dialect writes, only what it finds in the engine's own reading of
the text runs. The others give errors in the terms of what the user wrote, and bound the work before it.
"""
