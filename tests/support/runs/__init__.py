"""The run of all tests: what it fetches ahead, how failures are told, when it ends; waiting drivers."""
