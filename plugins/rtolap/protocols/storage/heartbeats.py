"""Heartbeats of a storage node to a front end; any of them will do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import httpx
import msgspec

from rtolap.base.errors import RtolapError, Unavailable, from_dict
from rtolap.base.tls import trust
from rtolap.protocols.storage.messages import Heartbeat, HeartbeatAnswer
from rtolap.protocols.stored_tables.messages import API

TIMEOUT_S = 5.0


class HeartbeatClient:
    """For one thread. `urls`: base URLs of endpoints; one that responded is tried first the next time. `ca`:
    PEM whom to trust; None: the system's."""

    def __init__(self, urls: Sequence[str], token: str, *, ca: Path | None = None) -> None:
        self._urls = list(urls)
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_S, verify=trust(ca)
        )

    def send(self, name: str, beat: Heartbeat) -> HeartbeatAnswer:
        """Raises Unavailable when no endpoint answers; Refused for a name that is taken."""
        reasons = []
        for url in list(self._urls):
            try:
                answer = self._http.post(
                    f"{url}{API}/storage-nodes/{quote(name, safe='')}/heartbeat",
                    content=msgspec.json.encode(beat),
                )
                if answer.status_code == httpx.codes.OK:
                    self._urls.remove(url)
                    self._urls.insert(0, url)
                    return msgspec.json.decode(answer.content, type=HeartbeatAnswer)
                raise _named(url, answer)
            except (httpx.TransportError, Unavailable) as error:
                reasons.append(f"{url}: {error}")
        raise Unavailable("no endpoint takes the heartbeat of a storage node", found="; ".join(reasons))

    def close(self) -> None:
        self._http.close()


def _named(url: str, answer: httpx.Response) -> RtolapError:
    try:
        payload = msgspec.json.decode(answer.content, type=dict[str, object])
    except msgspec.MsgspecError:
        return Unavailable(f"endpoint {url} does not take heartbeats", found=f"HTTP {answer.status_code}")
    return from_dict(payload)
