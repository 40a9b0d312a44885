"""Proves a store: what every store promises, as pytest tests. Needs `lakewake[testing]`.

Subclass `StoreContract` and give it a `store` fixture:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path)
"""

import pytest

# Before they are imported: otherwise a failed assertion would not show its values.
pytest.register_assert_rewrite(
    "lakewake.testing.answers",
    "lakewake.testing.batches",
    "lakewake.testing.dropping",
    "lakewake.testing.joining",
    "lakewake.testing.reading",
    "lakewake.testing.samples",
    "lakewake.testing.searching",
    "lakewake.testing.stores",
    "lakewake.testing.writing",
)

from lakewake.testing.samples import batch, chunk, frontier, recipe  # noqa: E402
from lakewake.testing.stores import StoreContract  # noqa: E402

__all__ = ["StoreContract", "batch", "chunk", "frontier", "recipe"]
