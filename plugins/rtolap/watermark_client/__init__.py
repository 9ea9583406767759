"""The public client of watermarks: sources report how far they are and what they still work on.

What may be imported from outside is what this page exports.
"""

from rtolap.watermark_client.client import WatermarkClient, unfinished

__all__ = ["WatermarkClient", "unfinished"]
