"""Committed offsets that are numbers of batches and not positions: the markers of Spark's exactly-once sink.

The sink commits the number of a batch as an offset of partition 0 of its topic, in the transaction of the batch. Its
metadata says how much was written. So ``end - offset`` is no lag.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

_FORMS = ({"rows", "size"}, {"tasks"})
"""The names in the metadata: of the marker of a task, and of the marker of a query."""


def marker_metadata(counts: Mapping[str, int]) -> str:
    """Return the metadata of a marker."""
    assert set(counts) in _FORMS, "a reader of lag recognizes the markers by these names"
    return json.dumps(counts)


def is_marker(metadata: str) -> bool:
    """Return whether an offset with this metadata is the number of a batch."""
    if not metadata.startswith('{"') or len(metadata) > 100:
        return False
    try:
        counts = json.loads(metadata)
    except ValueError:
        return False
    return isinstance(counts, dict) and set(counts) in _FORMS
