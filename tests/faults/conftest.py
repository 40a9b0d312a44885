"""Fixtures of the fault tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.killing import Killer


@pytest.fixture(scope="session")
def kill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    """Run a task over a memory table until it is killed; return how it ended."""
    killer = Killer(tmp_path_factory.mktemp("temporary"))
    yield killer
    killer.close()
