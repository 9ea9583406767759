"""Tests on a real HBase."""
