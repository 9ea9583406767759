"""The form of labels."""

from __future__ import annotations

import re

from rtolap.base.errors import DefinitionError
from rtolap.stored.stream_load import messages

LABEL_PATTERN = "^[-_A-Za-z0-9:]{1,128}$"
_LABEL = re.compile(LABEL_PATTERN.removesuffix("$") + r"\Z")


def checked_label(label: str) -> str:
    if not _LABEL.match(label):
        raise DefinitionError(messages.label_format(label, LABEL_PATTERN))
    return label
