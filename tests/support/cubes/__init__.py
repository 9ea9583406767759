"""Receivers, coordinators and builds: harnesses, recounts, contract suites."""
