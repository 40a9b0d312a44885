"""2 · Decides what a sync does: build, follow, reconcile or nothing. Pure: no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from lakewake.errors import ConfigError, HistoryLost
from lakewake.model.avro import same_type, same_types, type_at
from lakewake.model.escapes import unescaped
from lakewake.model.frontier import Frontier
from lakewake.model.options import NO_OPTIONS, SyncOptions
from lakewake.model.plan import Action, Plan
from lakewake.model.recipe import Recipe
from lakewake.model.rows import RowId
from lakewake.model.timeline import UNDOING, Instant, Look, TableIdentity


def check_columns(look: Look, recipe: Recipe) -> None:
    """Raise if the recipe names a column that the table does not have.

    Raises:
        ConfigError: the hint lists the table's columns.
    """
    if not look.schema:
        return  # an empty table without a commit has no columns yet
    missing = [c for c in recipe.columns if type_at(look.schema, c) is None]
    if missing:
        raise ConfigError(
            f"table '{look.table.name}' has no column {', '.join(map(repr, missing))}",
            hint=f"use one of its columns: {', '.join(sorted(look.schema))}",
        )


def build_plan(
    look: Look, held: Frontier | None, recipe: Recipe, options: SyncOptions = NO_OPTIONS
) -> Plan:
    """Decide what a sync with these options does.

    Args:
        held: the frontier of the index; None: there is no index, or none that can be read.
    """
    plan = _with_options(look, held, recipe, options)
    return replace(plan, new_generation=_needs_new_generation(plan, held))


def _with_options(look: Look, held: Frontier | None, recipe: Recipe, options: SyncOptions) -> Plan:
    if options.limit or (held and held.limit):
        return _first_rows(look, held, recipe, options)
    if options.rebuild:
        return _rebuild(_ordinary(look, None, recipe), held, options)
    plan = _ordinary(look, held, recipe)
    reconcile, why = options.reconcile, options.why or "a reconcile was asked for"
    if options.moving and plan.pending and reconcile is None:
        # Otherwise a table that commits all the time would never let the day move.
        reconcile, why = True, f"rows are selected on {look.date}, and commits keep coming"
    if reconcile and plan.action in (Action.FOLLOW, Action.NOTHING):
        after = replace(plan.after, date=look.date if recipe.dated else "")
        return replace(plan, action=Action.RECONCILE, why=why, after=after, since="")
    if options.retry_quarantined and plan.action is Action.NOTHING and held:
        return _retry(plan, tuple(sorted(held.quarantine.keys() - options.tried)))
    return plan


def _first_rows(look: Look, held: Frontier | None, recipe: Recipe, options: SyncOptions) -> Plan:
    """The plan of a first try with some rows, or of the sync that completes it."""
    if held and held.limit == options.limit and not options.rebuild:
        plan = _ordinary(look, held, recipe)
        if plan.action is Action.NOTHING:
            return replace(plan, why=f"{plan.why}, with {_rows(held.limit)} as asked for")
    why = options.why
    if not why and held and not options.limit:
        why = f"the index holds {_rows(held.limit)} of a first try"
    elif not why and options.limit:
        why = f"{_rows(options.limit)} were asked for"
    plan = _rebuild(_ordinary(look, None, recipe), held, replace(options, why=why))
    return replace(plan, after=replace(plan.after, limit=options.limit))


def check_limit(name: str, held: Frontier | None, options: SyncOptions) -> None:
    """Raise if a first try with some rows would replace an index of all rows.

    Raises:
        ConfigError: it would.
    """
    if options.limit and held is not None and not held.limit:
        raise ConfigError(
            f"index '{name}' holds all its rows already, so a limit of {options.limit} rows would "
            "remove most of them",
            hint=f"run `lakewake sync {name}` without a limit, or try another index",
        )


def check_reconcile(name: str, plan: Plan, options: SyncOptions) -> None:
    """Raise if the plan needs a reconcile that the options rule out.

    Raises:
        HistoryLost: history cannot be followed and `reconcile=False` was passed.
    """
    if plan.action is Action.RECONCILE and options.reconcile is False:
        raise HistoryLost(
            f"index '{name}' cannot follow its table: {plan.why}",
            hint=f"`lakewake sync {name}` compares and repairs; known text is not embedded",
        )


def _rebuild(plan: Plan, held: Frontier | None, options: SyncOptions) -> Plan:
    if held is None and not options.why:
        return plan
    # The count goes on, so that no two generations ever have equal frontiers.
    after = replace(plan.after, sync=held.sync + 1) if held else plan.after
    return replace(plan, why=options.why or "a rebuild was asked for", after=after)


def _retry(plan: Plan, rows: tuple[RowId, ...]) -> Plan:
    if not rows:
        return plan
    why = f"{len(rows)} rows in quarantine are tried again"
    return replace(plan, action=Action.FOLLOW, why=why, retried=rows)


def _needs_new_generation(plan: Plan, held: Frontier | None) -> bool:
    """A build writes one, and so does a reconcile after a used column changed its type."""
    if plan.action is Action.RECONCILE and held is not None:
        # A truncated table has no columns. The index keeps its own until there are some.
        schema = plan.after.schema
        return bool(schema) and not same_types(held.schema, schema)
    return plan.action is Action.BUILD


def _ordinary(look: Look, frontier: Frontier | None, recipe: Recipe) -> Plan:
    """What brings an index at `frontier` to the table as `look` saw it."""
    after = frontier_after(look, frontier, recipe)
    if frontier is None:
        return Plan(Action.BUILD, "there is no index yet", after)
    if not frontier.instants and look.completed:
        return Plan(Action.BUILD, "the index was built before the table's first commit", after)
    lost = why_lost(look, frontier, recipe) if frontier.instants else ""
    pending = pending_instants(look, frontier)
    if lost:
        return Plan(Action.RECONCILE, lost, after, pending)
    if pending:
        # Commits are followed on the day that the index is at; a second step moves the day.
        after = replace(after, date=frontier.date)
        return Plan(Action.FOLLOW, _why_follow(look, pending), after, pending)
    if after.date != frontier.date:
        why = f"rows are selected on {after.date}, the index is at {frontier.date}"
        return Plan(Action.FOLLOW, why, after, since=frontier.date)
    return Plan(Action.NOTHING, f"the index is at {frontier.newest or 'an empty table'}", after)


def frontier_after(look: Look, frontier: Frontier | None, recipe: Recipe) -> Frontier:
    """The frontier of an index that has absorbed everything that `look` saw."""
    return Frontier(
        table=look.table,
        instants={**_overlapping(look, frontier), **look.completed},
        in_flight=look.in_flight,
        schema={c: t for c in recipe.columns if (t := type_at(look.schema, c)) is not None},
        duplicates=frontier.duplicates if frontier else frozenset(),
        quarantine=frontier.quarantine if frontier else {},
        sync=frontier.sync + 1 if frontier else 1,
        location=look.location,
        date=look.date if recipe.dated else "",
    )


def _overlapping(look: Look, frontier: Frontier | None) -> dict[str, str]:
    """Absorbed instants, archived since, that completed while one still in flight was running.

    The effect of that one depends on the instants that it overlapped.
    """
    begun, first = min(look.in_flight, default="~"), _first(look)
    absorbed = frontier.instants if frontier and _same_table(look, frontier) else {}
    return {r: c for r, c in absorbed.items() if c >= begun and r < first}


def pending_instants(look: Look, frontier: Frontier) -> tuple[Instant, ...]:
    """Completed, data-changing instants that the frontier does not hold, in completion order."""
    pending = (i for i in look.instants if i.changes_data and i.requested not in frontier.instants)
    return tuple(sorted(pending, key=lambda i: (i.completed or "", i.requested)))


def behind_since(plan: Plan, look: Look, frontier: Frontier | None) -> str:
    """When the first change that the index lacks completed; '' if it lacks none or does not exist.

    If no commit is pending, one was undone: by a restore after the index's newest commit, or with
    the whole table. Then the newest known time has to do.
    """
    if frontier is None or plan.action is Action.NOTHING or plan.since:
        return ""
    if pending := pending_instants(look, frontier):
        return pending[0].completed or ""
    absorbed = frontier.instants.get(frontier.newest, "")
    undone = [i.completed for i in look.instants if i.completed and i.action in UNDOING]
    newest = look.completed.get(look.newest, absorbed)
    return min((c for c in undone if c > absorbed), default=newest)


def why_lost(look: Look, frontier: Frontier, recipe: Recipe) -> str:
    """Why history cannot be followed from a `frontier` that has instants; '' if it can."""
    done = look.completed
    first = _first(look)
    if not _same_table(look, frontier):
        return "this is another table: its name, key, partitioning or type changed"
    gone = sorted(r for r in frontier.instants if first and r >= first and r not in done)
    if gone:
        return f"a restore or a rollback has undone {_count(gone)}, which the index had absorbed"
    if max(frontier.instants) <= look.archived:
        return f"the table archived history up to {look.archived}, behind a savepoint"
    if frontier.newest not in done:
        kept = f"history from {first}" if first else "no history"
        return f"the table keeps {kept}, but the index is at {frontier.newest}"
    moved = sorted(r for r, c in frontier.instants.items() if r in done and done[r] != c)
    if moved:
        return f"the completion time changed since the last sync: {_count(moved)}"
    return _lost_in_flight(look, frontier, first) or _schema_change(look, frontier, recipe)


def _first(look: Look) -> str:
    """Where the table's history begins: the oldest instant that changed rows or still may."""
    data = (i.requested for i in look.instants if i.changes_data or i.may_change_data)
    return min(data, default="")


def _same_table(look: Look, frontier: Frontier) -> bool:
    return look.table in (frontier.table, _read_whole(frontier.table))


def _read_whole(table: TableIdentity) -> TableIdentity:
    """The identity as an earlier version wrote it, with some of Java's escapes left in names."""
    try:
        return TableIdentity(**{k: unescaped(v) for k, v in table.as_dict().items()})
    except ValueError:
        return table


def _lost_in_flight(look: Look, frontier: Frontier, first: str) -> str:
    here = {i.requested for i in look.instants}
    archived = (r for r in frontier.in_flight if r < first or r <= look.archived)
    gone = sorted(r for r in archived if r not in here)
    return f"in flight at the last sync, archived since: {_count(gone)}" if gone else ""


def _schema_change(look: Look, frontier: Frontier, recipe: Recipe) -> str:
    if not frontier.schema:
        return ""
    steps = [(f" in {r}", schema) for r, schema in _schemas_on_the_way(look, frontier)]
    steps += [("", look.schema)] if look.schema else []
    for when, schema in steps:
        for column in recipe.columns:
            old, new = frontier.schema.get(column), type_at(schema, column)
            if not same_type(old, new):
                return f"column {column!r} went from {_plain(old)} to {_plain(new)}{when}"
    return ""


def _schemas_on_the_way(look: Look, frontier: Frontier) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Each pending commit's schema. The first and last one alone miss a column dropped and added.

    A writer that began before the newest absorbed commit is only late: it undoes no change.
    """
    newest = max(frontier.instants, default="")
    for instant in sorted(pending_instants(look, frontier)):
        commit = look.commits.get(instant.requested)
        if commit and commit.schema and commit.tells_schema and instant.requested > newest:
            yield instant.requested, commit.schema


def _plain(avro: str | None) -> str:
    if avro is None:
        return "absent"
    value = json.loads(avro)
    return value if isinstance(value, str) else avro


def _count(instants: list[str]) -> str:
    if len(instants) == 1:
        return f"instant {instants[0]}"
    return f"{len(instants)} instants, {instants[0]} to {instants[-1]}"


def _why_follow(look: Look, pending: tuple[Instant, ...]) -> str:
    operations = [
        look.commits[i.requested].operation.lower() for i in pending if i.requested in look.commits
    ]
    kinds = ", ".join(dict.fromkeys(operations))
    noun = "commit" if len(pending) == 1 else "commits"
    return f"{len(pending)} new {noun}" + (f" ({kinds})" if kinds else "")


def _rows(limit: int) -> str:
    return "the first row" if limit == 1 else f"the first {limit:,} rows"
