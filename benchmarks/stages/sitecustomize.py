"""Has a receiver note its steps and answers, where RTOLAP_STAGES names a file.

Python imports a module of this name at start; `benchmarks.freshness --stages` puts this folder on the path of
the receiver.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if "receiver" in sys.orig_argv:
    from benchmarks.stages.noted import FILE_VARIABLE, note

    if FILE_VARIABLE in os.environ:
        note(Path(os.environ[FILE_VARIABLE]))
