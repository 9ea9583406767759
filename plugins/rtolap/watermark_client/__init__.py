"""The public client of watermarks: sources report how far they are and what they still work on.

What may be imported from outside: `WatermarkClient` and what this page exports.
"""
