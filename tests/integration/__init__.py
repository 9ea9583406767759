"""Tests on real servers; each package shares those of its conftest, which stop when its last test is done."""
