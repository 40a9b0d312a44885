"""What the tests of faults share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.killing import Killer


@pytest.fixture(scope="session")
def kill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    """Runs a task over a memory table until it is killed; tells how it ended."""
    killer = Killer(tmp_path_factory.mktemp("temporary"))
    yield killer
    killer.close()
