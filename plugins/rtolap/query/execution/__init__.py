"""The execution of one statement: rewritten for its relations, their rows read, and the engine run over them.

`rewriting` gives a statement the relations that it reads, and knows when the catalogue is too old for it;
`reads` fetches what cubes and stored tables have for it; `run` makes the result of that. All three work
within the statement's turn, and end with its cancellation.
"""
