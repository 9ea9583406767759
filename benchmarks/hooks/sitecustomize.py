"""Runs the hooks that RTOLAP_BENCH_HOOKS names in this process, if it is one of their services.

Only as the module by which Python starts: a hook's own imports may import it a second time, by its full name.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

VARIABLE = "RTOLAP_BENCH_HOOKS"

if __name__ == "sitecustomize":
    for _module, _argument, _services in json.loads(os.environ.get(VARIABLE, "[]")):
        if set(_services) & set(sys.orig_argv):
            importlib.import_module(_module).begin(_argument)
