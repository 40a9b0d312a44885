"""Long random histories on the memory table, others in every run; a failure is shown shrunk."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

sys.path.insert(0, str(Path(__file__).parents[1] / "property"))
from test_any_history import FAST, AnyHistory, AnyHistoryInLance, in_small_pieces

__all__ = ["in_small_pieces"]  # a fixture for this file too

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

LONG = settings(FAST, stateful_step_count=40, derandomize=False)


def test_any_long_history_is_followed_in_memory():
    run_state_machine_as_test(AnyHistory, settings=settings(LONG, max_examples=5000))


def test_any_long_history_is_followed_in_lance():
    run_state_machine_as_test(AnyHistoryInLance, settings=settings(LONG, max_examples=200))
