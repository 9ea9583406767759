"""The run of all tests: what is fetched beside it, how failures are told, when it ends."""
