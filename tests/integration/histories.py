"""What can happen to a Hudi table, as a catalogue: each history is steps with a sync after each."""

from __future__ import annotations

from histories_of_rows import ROWS
from histories_of_schemas import SCHEMAS
from histories_of_timelines import TIMELINES
from playing import History

HISTORIES: dict[str, History] = {**ROWS, **TIMELINES, **SCHEMAS}
