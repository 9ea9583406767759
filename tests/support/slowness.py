"""How much longer this machine may take: `RTOLAP_TEST_SLOWNESS`, 1 where it is not set.

Deadlines of tests are multiplied by it. A deadline ends only what would never come, so a large factor costs
nothing where all is well.
"""

from __future__ import annotations

import os
from typing import Final

SLOWNESS: Final = max(1.0, float(os.environ.get("RTOLAP_TEST_SLOWNESS", "1")))
