"""Whether a reconcile writes into the index or beside it."""

from __future__ import annotations

import pytest

from lakewake.model.frontier import Frontier
from lakewake.model.plan import Action, Plan
from lakewake.model.timeline import Look, TableIdentity
from lakewake.sync import Situation

TABLE = TableIdentity("t", "id", "", "COPY_ON_WRITE")


@pytest.mark.parametrize(
    ("after", "builds"), [({"num": '"int"'}, False), ({"num": '"long"'}, True), ({}, False)]
)
def test_only_columns_of_another_type_need_a_new_generation(after, builds):
    before = Frontier(TABLE, {"1": "2"}, schema={"num": '"int"'})
    plan = Plan(Action.RECONCILE, "because", Frontier(TABLE, schema=after))
    look = Look(TABLE, (), after)
    assert Situation(1, None, before, look, plan).builds is builds
