"""Services with which every load is carried out, by itself or in a group."""

from __future__ import annotations

from dataclasses import dataclass, field

from rtolap.stored.bodies.settings import BodySettings
from rtolap.stored.frontend.http.body_pipe import BodyPipe
from rtolap.stored.frontend.loads.committing import Committing
from rtolap.stored.frontend.loads.distribution import Tables
from rtolap.stored.frontend.loads.error_files import ErrorFiles
from rtolap.stored.frontend.loads.load_statistics import Progress
from rtolap.stored.frontend.loads.reading import Reading
from rtolap.stored.frontend.loads.request import LoadRequest


@dataclass(frozen=True)
class LoadServices:
    committing: Committing
    tables: Tables
    error_files: ErrorFiles
    body_settings: BodySettings = field(default_factory=BodySettings)

    def reading(self, request: LoadRequest, pipe: BodyPipe, progress: Progress, deadline_s: float) -> Reading:
        """Close it."""
        return Reading(request, pipe, progress, self.error_files, self.body_settings, deadline_s)
