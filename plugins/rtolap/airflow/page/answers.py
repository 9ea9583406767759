"""How the page's routes answer: as JSON that nobody keeps, and before the person who waits gives up."""

from __future__ import annotations

import msgspec
from fastapi import Response

# A person waits, and each request has a thread of the API server meanwhile: the page asks again by itself.
ANSWER_S_MAX = 8.0


def json_answer(message: msgspec.Struct) -> Response:
    return Response(
        msgspec.json.encode(message), media_type="application/json", headers={"cache-control": "no-store"}
    )
