"""What can happen to a Hudi table, as a catalogue: each history is steps with a sync after each."""

from __future__ import annotations

from support.hudi.histories_of_rows import ROWS
from support.hudi.histories_of_schemas import SCHEMAS
from support.hudi.histories_of_timelines import TIMELINES
from support.hudi.playing import History

HISTORIES: dict[str, History] = {**ROWS, **TIMELINES, **SCHEMAS}
