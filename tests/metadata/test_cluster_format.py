from __future__ import annotations

import pytest
from rtolap.base.errors import SchemaTooNew
from rtolap.metadata import paths
from rtolap.metadata.cluster_store import MAJOR, ClusterFormat, check_format, note_format
from rtolap.metadata.codec import encode
from rtolap.metadata.store import Create

from tests.support.twins.metadata import MemoryEnsemble, MemoryStore


def test_a_cluster_of_a_later_major_version_is_refused_by_name() -> None:
    store = MemoryStore(MemoryEnsemble())
    check_format(store)  # of a time when nobody noted it
    note_format(store)
    note_format(store)
    check_format(store)
    later = MemoryStore(MemoryEnsemble())
    later.commit([Create(paths.CLUSTER_FORMAT, encode(ClusterFormat(MAJOR + 1)))])
    note_format(later)
    with pytest.raises(SchemaTooNew, match=f"a later major version.*at most {MAJOR}; found {MAJOR + 1}"):
        check_format(later)
