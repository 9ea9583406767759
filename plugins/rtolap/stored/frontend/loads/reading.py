"""A load's bytes to rows of their tablets, with everything noted that its response reports of them."""

from __future__ import annotations

from collections.abc import Iterator

from rtolap.stored.bodies.decode import decode_body
from rtolap.stored.bodies.settings import BodySettings
from rtolap.stored.engine.routing import RoutedPart
from rtolap.stored.frontend.http.body_pipe import BodyPipe
from rtolap.stored.frontend.loads.distribution import Distribution
from rtolap.stored.frontend.loads.error_files import ErrorFile, ErrorFiles
from rtolap.stored.frontend.loads.load_statistics import Phase, Progress
from rtolap.stored.frontend.loads.request import LoadRequest


class Reading:
    """Reader of one load; for one thread. Raises what reading and decoding the body do."""

    def __init__(
        self,
        request: LoadRequest,
        pipe: BodyPipe,
        progress: Progress,
        error_files: ErrorFiles,
        settings: BodySettings,
        deadline_s: float,
    ) -> None:
        self._request = request
        self._pipe = pipe
        self._progress = progress
        self._error_files = error_files
        self._errors: ErrorFile = error_files.new()
        self._settings = settings
        self._deadline_s = deadline_s

    def parts(self, distribution: Distribution) -> Iterator[tuple[RoutedPart, ...]]:
        chunks = self._pipe.chunks(self._deadline_s)
        for batch in decode_body(chunks, self._request.options, distribution.schema, self._settings):
            self._progress.counts.add_batch(batch)
            if batch.rejected is not None:
                rows = batch.rejected.rows
                shown = zip(rows["text"].to_pylist(), rows["reason"].to_pylist(), strict=True)
                self._errors.write_rows(shown, batch.rejected.count)
            with self._progress.measured(Phase.WRITE):
                distributed = distribution.split(batch.rows)
            if distributed.unroutable is not None:
                self._progress.counts.filter(distributed.unroutable.count)
                self._errors.write_rows(distributed.unroutable.shown, distributed.unroutable.count)
            yield distributed.parts

    def close(self) -> None:
        """Stop reading, and put the final figures into the progress."""
        self._pipe.close()
        self._errors.close()
        self._progress.load_bytes = self._pipe.received_bytes
        self._progress.spent_s[Phase.READ] = self._pipe.waited_s
        self._progress.first_error = self._errors.first
        if self._errors.name is not None:
            self._progress.error_url = self._error_files.url(self._errors.name)
