"""Measures of every aggregate function, for the contract that all of them keep."""
