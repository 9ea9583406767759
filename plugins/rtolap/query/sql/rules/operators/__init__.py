"""Operators, choices and casts over typed operands: written so that MySQL's answer comes, or a clear refusal.

| written | MySQL | the engine |
|---|---|---|
| integers with `+ - *` | 64 bits, and a SUM has more | 32 bits where both are |
| `a % 0`, `a DIV 0` | NULL | an error |
| text beside a number | a double | a rounded integer, or an error |
| CASE, COALESCE, … over decimals of several scales | the largest scale | of a SUM the smallest |
| a choice of text and something else | text | an error |
| booleans as numbers and as text | 1 and 0 | TRUE and FALSE, or an error |
| `ROUND` of a double | half to even | half away from zero |

`rewrites` says which rewrite an expression gets: `arithmetic`, `choices`, `casts` and `over_rows` are here,
comparisons in `rules.comparisons`, bits in `bits`, INTERVALs in `moments`, regular expressions in `patterns`.
"""
