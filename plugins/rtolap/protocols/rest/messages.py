"""Common parts of all messages that a coordinator takes and answers over REST."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

API = "/api/v1"

Definition = dict[str, Any]  # a Table, Lookup or Cube as `msgspec.to_builtins` writes it


class Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class ErrorAnswer(Message):
    """`RtolapError.to_dict`; a standby that cannot reach its leader names it in `leader_url`."""

    code: str
    message: str
    leader_url: str | None = None
