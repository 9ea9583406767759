"""A fleet at one moment: the value (`model`), how it is read off brokers, their `rates`, and its file."""
