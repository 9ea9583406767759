"""Statements that differ only in the texts that they compare columns with have one shape, and one plan.

`statement_shape` takes the literals out of a text. `plan_templates` makes the plan of a shape, and fills it.
"""
