"""Harnesses, contract suites and builders of test data. Production code never imports this room."""
