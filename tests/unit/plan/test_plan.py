"""Build, follow, reconcile or nothing: decided without reading a row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakewake.errors import ConfigError, HistoryLost
from lakewake.model.frontier import Frontier, Refusal
from lakewake.model.options import SyncOptions
from lakewake.model.plan import Action
from lakewake.model.recipe import ModelIdentity, Recipe, TextField
from lakewake.model.rows import RowId
from lakewake.model.timeline import CommitMetadata, Instant, Look, TableIdentity
from lakewake.plan import build_plan, check_columns, check_reconcile

TABLE = TableIdentity("t", "id", "part", "COPY_ON_WRITE")
SCHEMA = {"txt": '"string"', "num": '"int"', "other": '"int"'}
RECIPE = Recipe(ModelIdentity("hashing", "h", 8), (TextField("text", "{txt}"),), payload=("num",))


def look(*instants: Instant, schema: dict[str, str] | None = None, **commits) -> Look:
    meta = {f"{k[1:]}": CommitMetadata("UPSERT", schema=v) for k, v in commits.items()}
    return Look(TABLE, instants, SCHEMA if schema is None else schema, meta)


def done(requested: str, completed: str, action: str = "commit") -> Instant:
    return Instant(requested, completed, action)


def after(*instants: Instant) -> Frontier:
    return build_plan(look(*instants), None, RECIPE).after


def test_without_an_index_the_plan_is_to_build():
    plan = build_plan(look(done("1", "2")), None, RECIPE)
    assert plan.action is Action.BUILD
    assert plan.after.instants == {"1": "2"}
    assert plan.after.schema == {"txt": '"string"', "num": '"int"'}


def test_without_new_commits_there_is_nothing_to_do():
    assert build_plan(look(done("1", "2")), after(done("1", "2")), RECIPE).action is Action.NOTHING


def test_new_commits_are_followed_in_completion_order():
    frontier = after(done("1", "2"))
    plan = build_plan(look(done("1", "2"), done("3", "9"), done("4", "5")), frontier, RECIPE)
    assert plan.action is Action.FOLLOW
    assert [i.requested for i in plan.pending] == ["4", "3"]


def test_a_slow_writer_that_completes_late_is_still_pending():
    frontier = after(done("1", "2"), Instant("3", None, "commit"), done("4", "5"))
    assert frontier.in_flight == ("3",)
    plan = build_plan(look(done("1", "2"), done("3", "6"), done("4", "5")), frontier, RECIPE)
    assert [i.requested for i in plan.pending] == ["3"]


def test_absorbed_instants_that_were_archived_are_not_lost():
    frontier = after(done("1", "2"), done("3", "4"))
    assert build_plan(look(done("3", "4")), frontier, RECIPE).action is Action.NOTHING


def test_an_archived_instant_is_kept_while_one_that_it_overlapped_is_in_flight():
    planned = Instant("3", None, "clustering")
    frontier = after(done("1", "2"), done("2", "4"), planned)
    here = look(planned, done("5", "6"))
    kept = build_plan(here, frontier, RECIPE).after
    assert kept.instants == {"2": "4", "5": "6"}
    ended = look(done("3", "7", "replacecommit"), done("5", "6"))
    assert build_plan(ended, kept, RECIPE).action is Action.FOLLOW
    assert build_plan(ended, kept, RECIPE).after.instants == {"3": "7", "5": "6"}


def test_an_older_clean_left_on_the_timeline_does_not_make_archived_commits_lost():
    frontier = after(done("1", "2"), done("3", "4"), done("5", "6"))
    seen = look(done("2", "3", "clean"), done("5", "6"))
    assert build_plan(seen, frontier, RECIPE).action is Action.NOTHING


def test_vanished_absorbed_instants_mean_reconcile():
    frontier = after(done("1", "2"), done("3", "4"))
    plan = build_plan(look(done("1", "2"), done("5", "6", "restore")), frontier, RECIPE)
    assert plan.action is Action.RECONCILE
    assert "instant 3" in plan.why


def test_history_that_begins_after_the_frontier_means_reconcile():
    plan = build_plan(look(done("7", "8")), after(done("1", "2")), RECIPE)
    assert plan.action is Action.RECONCILE
    assert "keeps history from 7" in plan.why


def test_commits_archived_behind_a_savepoint_at_the_frontier_mean_reconcile():
    saved = done("1", "2")
    seen = replace(look(saved, done("7", "8")), archived="5")
    plan = build_plan(seen, after(saved), RECIPE)
    assert plan.action is Action.RECONCILE
    assert "archived history up to 5, behind a savepoint" in plan.why
    assert build_plan(seen, plan.after, RECIPE).action is Action.NOTHING


def test_absorbed_commits_archived_behind_a_savepoint_mean_reconcile():
    saved, newest = done("1", "2"), done("7", "8")
    frontier = after(saved, done("5", "6"), newest)
    plan = build_plan(replace(look(saved, newest), archived="5"), frontier, RECIPE)
    assert plan.action is Action.RECONCILE


def test_history_archived_before_a_savepoint_is_followed():
    saved = done("3", "4")
    seen = replace(look(saved, done("5", "6")), archived="1")
    assert build_plan(seen, after(saved), RECIPE).action is Action.FOLLOW


def test_a_slow_writer_with_a_savepoint_does_not_hide_what_is_absorbed_after_it():
    slow, newest = done("1", "9"), done("7", "8")
    seen = replace(look(slow, newest), archived="5")
    assert build_plan(seen, after(slow, newest), RECIPE).action is Action.NOTHING


def test_an_instant_seen_in_flight_and_archived_behind_a_savepoint_means_reconcile():
    saved, newest = done("1", "2"), done("5", "6")
    frontier = after(saved, Instant("3", None, "commit"), newest)
    plan = build_plan(replace(look(saved, newest), archived="3"), frontier, RECIPE)
    assert plan.action is Action.RECONCILE
    assert "in flight" in plan.why


def test_another_completion_time_of_an_absorbed_instant_means_reconcile():
    plan = build_plan(look(done("1", "3")), after(done("1", "2")), RECIPE)
    assert plan.action is Action.RECONCILE


def test_an_instant_seen_in_flight_and_archived_since_means_reconcile():
    frontier = after(Instant("1", None, "commit"), done("3", "4"))
    plan = build_plan(look(done("3", "4")), frontier, RECIPE)
    assert plan.action is Action.RECONCILE
    assert "in flight" in plan.why


def test_an_instant_seen_in_flight_and_rolled_back_needs_no_work():
    frontier = after(done("1", "2"), Instant("3", None, "commit"))
    assert build_plan(look(done("1", "2")), frontier, RECIPE).action is Action.NOTHING


def test_another_table_at_the_same_location_means_reconcile():
    other = replace(look(done("1", "2")), table=replace(TABLE, record_key="uuid"))
    assert build_plan(other, after(done("1", "2")), RECIPE).action is Action.RECONCILE


def test_a_changed_type_of_a_used_column_means_reconcile():
    frontier = after(done("1", "2"))
    seen = look(done("1", "2"), done("3", "4"), c3={"txt": '"string"', "num": '"long"'})
    plan = build_plan(seen, frontier, RECIPE)
    assert plan.action is Action.RECONCILE
    assert "'num' went from int to long in 3" in plan.why


def test_a_column_dropped_and_added_again_inside_one_window_means_reconcile():
    frontier = after(done("1", "2"))
    seen = look(
        done("1", "2"), done("3", "4"), done("5", "6"), c3={"txt": '"string"'}, c5=dict(SCHEMA)
    )
    assert build_plan(seen, frontier, RECIPE).action is Action.RECONCILE


def test_a_new_column_that_the_recipe_does_not_use_is_followed():
    frontier = after(done("1", "2"))
    seen = look(done("1", "2"), done("3", "4"), c3={**SCHEMA, "more": '"int"'})
    assert build_plan(seen, frontier, RECIPE).action is Action.FOLLOW


def test_an_index_of_an_empty_table_is_built_again_at_the_first_commit():
    frontier = after()
    assert build_plan(look(schema={}), frontier, RECIPE).action is Action.NOTHING
    assert build_plan(look(done("1", "2")), frontier, RECIPE).action is Action.BUILD


def test_a_missing_column_is_refused_with_the_existing_ones():
    with pytest.raises(ConfigError) as error:
        check_columns(look(done("1", "2")), replace(RECIPE, payload=("nope",)))
    assert "'nope'" in error.value.fact
    assert "num, other, txt" in error.value.hint


def test_a_frontier_with_odd_keys_survives_json():
    frontier = replace(after(done("1", "2")), duplicates=frozenset({RowId("p=ä", "k\n'\"")}))
    assert Frontier.from_json(frontier.to_json()) == frontier


def test_a_frontier_of_another_format_is_refused():
    with pytest.raises(ValueError, match="format 3"):
        Frontier.from_json('{"format": 3}')


def test_a_slow_writer_with_the_old_schema_does_not_undo_a_change():
    frontier = after(done("1", "2"), done("4", "5"))
    former = {"txt": '"string"'}
    late = look(done("1", "2"), done("3", "9"), done("4", "5"), _3=former)
    assert build_plan(late, frontier, RECIPE).action is Action.FOLLOW


def test_a_late_writer_whose_schema_the_table_now_shows_is_a_change():
    frontier = after(done("1", "2"), done("4", "5", "replacecommit"))
    wide = {**SCHEMA, "num": '"long"'}
    late = look(
        done("1", "2"), done("3", "9"), done("4", "5", "replacecommit"), schema=wide, _3=wide
    )
    plan = build_plan(late, frontier, RECIPE)
    assert (plan.action, plan.why) == (Action.RECONCILE, "column 'num' went from int to long")


def test_an_index_with_a_longer_spelling_of_a_type_is_followed():
    stamp = '{"logicalType": "timestamp-micros", "type": "long"}'
    verbose = {"txt": '{"avro.java.string": "String", "type": "string"}', "num": stamp}
    frontier = replace(after(done("1", "2")), schema=verbose)
    now = {"txt": '"string"', "num": stamp.replace("micros", "millis")}
    plan = build_plan(look(done("1", "2"), done("3", "4"), schema=now, _3=now), frontier, RECIPE)
    assert plan.action is Action.FOLLOW


def test_an_index_with_an_escaped_name_in_its_frontier_follows_the_same_table():
    noted = TableIdentity("t", "caf\\u00e9,a\\#b", "part", "COPY_ON_WRITE")
    frontier = replace(after(done("1", "2")), table=noted)
    table = replace(TABLE, record_key="café,a#b")
    looked = replace(look(done("1", "2"), done("3", "4")), table=table)
    assert build_plan(looked, frontier, RECIPE).action is Action.FOLLOW
    assert build_plan(look(done("1", "2")), frontier, RECIPE).action is Action.RECONCILE


@pytest.mark.parametrize(("after", "written_again"), [('"int"', False), ('"long"', True)])
def test_a_reconcile_writes_a_new_generation_only_if_a_used_column_changed_its_type(
    after, written_again
):
    frontier = Frontier(TABLE, {"1": "2"}, schema={"txt": '"string"', "num": '"int"'})
    seen = look(done("7", "8"), schema={"txt": '"string"', "num": after})
    plan = build_plan(seen, frontier, RECIPE)
    assert (plan.action, plan.new_generation) == (Action.RECONCILE, written_again)


def test_a_truncated_table_has_no_columns_and_needs_no_new_generation():
    frontier = Frontier(TABLE, {"1": "2"}, schema={"num": '"int"'})
    plan = build_plan(look(done("7", "8"), schema={}), frontier, RECIPE)
    assert (plan.action, plan.new_generation) == (Action.RECONCILE, False)


def test_a_build_writes_a_new_generation_and_a_follow_does_not():
    assert build_plan(look(done("1", "2")), None, RECIPE).new_generation
    followed = build_plan(look(done("1", "2"), done("3", "4")), after(done("1", "2")), RECIPE)
    assert (followed.action, followed.new_generation) == (Action.FOLLOW, False)


def test_a_rebuild_has_the_generation_after_the_index_it_replaces():
    held = replace(after(done("1", "2")), sync=7)
    plan = build_plan(look(done("1", "2")), held, RECIPE, SyncOptions(rebuild=True))
    assert (plan.action, plan.why, plan.new_generation) == (
        Action.BUILD,
        "a rebuild was asked for",
        True,
    )
    assert plan.after.sync == 8


def test_a_rebuild_without_an_index_is_an_ordinary_build():
    plan = build_plan(look(done("1", "2")), None, RECIPE, SyncOptions(rebuild=True))
    assert (plan.action, plan.why) == (Action.BUILD, "there is no index yet")


def test_a_reconcile_that_was_asked_for_replaces_a_follow_and_keeps_its_commits():
    seen = look(done("1", "2"), done("3", "4"))
    plan = build_plan(seen, after(done("1", "2")), RECIPE, SyncOptions(reconcile=True))
    assert (plan.action, plan.why) == (Action.RECONCILE, "a reconcile was asked for")
    assert plan.after.instants == {"1": "2", "3": "4"}


def test_quarantined_rows_are_retried_only_if_there_is_nothing_else_to_do():
    rows = {RowId("", "a"): Refusal("too long", "1"), RowId("", "b"): Refusal("too long", "1")}
    held = replace(after(done("1", "2")), quarantine=rows)
    options = SyncOptions(retry_quarantined=True, tried=frozenset({RowId("", "b")}))
    plan = build_plan(look(done("1", "2")), held, RECIPE, options)
    assert (plan.action, plan.retried) == (Action.FOLLOW, (RowId("", "a"),))
    assert not plan.follows_commits
    later = build_plan(look(done("1", "2"), done("3", "4")), held, RECIPE, options)
    assert (later.action, later.retried) == (Action.FOLLOW, ())


def test_a_reconcile_that_was_ruled_out_is_refused_with_the_reason():
    plan = build_plan(look(done("7", "8")), after(done("1", "2")), RECIPE)
    check_reconcile("wines", plan, SyncOptions())
    with pytest.raises(HistoryLost, match="cannot follow its table: the table keeps history from"):
        check_reconcile("wines", plan, SyncOptions(reconcile=False))
