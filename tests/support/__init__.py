"""Harnesses, contract suites, builders of test data, twins in memory. Production code never imports it."""
