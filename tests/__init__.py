"""Tests of rtolap; what they share is in `support`."""
