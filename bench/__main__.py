"""`python -m bench`: run bars, write results, report which are met.

Exit 0: all bars that ran are met; 1: one is missed, failed or could not be run.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from bench.bars import BARS, Bar
from bench.ground import Ground
from bench.machine import describe_machine
from bench.measures import Outcome
from bench.plots import draw
from bench.results import read_bars, write_bar, write_table
from bench.sizes import SIZES

RESULTS = Path(__file__).parent / "results"


def main(args: Sequence[str]) -> int:
    """Run the chosen bars; returns the exit code."""
    chosen = _parse(args)
    run = {
        "began": time.strftime("%Y-%m-%d %H:%M"),
        "size": chosen.size,
        "machine": describe_machine(),
    }
    # A run that is terminated still removes its tables.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    outcomes = {}
    with tempfile.TemporaryDirectory(prefix="lakewake-bench-", dir=chosen.scratch) as scratch:
        ground = Ground(SIZES[chosen.size], Path(scratch), chosen.peer)
        for number in chosen.bars:
            bar = BARS[number]
            ground.say(f"bar {number}: {bar.what}")
            outcomes[number] = outcome = _run(bar, ground)
            write_bar(chosen.out, bar, outcome, run)
            ground.say(f"bar {number}: {outcome.as_text()}")
    write_table(chosen.out)
    draw(chosen.out, read_bars(chosen.out))
    for number, outcome in outcomes.items():
        print(f"bar {number}: {outcome.as_text()}")
    return int(any(outcome.verdict != "met" for outcome in outcomes.values()))


def _run(bar: Bar, ground: Ground) -> Outcome:
    """Run one bar. A failure is a result too, and the other bars still run."""
    try:
        return bar.run(ground)
    except Exception as error:
        traceback.print_exc()
        return Outcome(fault=f"{type(error).__name__}: {error}"[:500])


def _parse(args: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--bars", type=_numbers, default=list(BARS), help="such as 4,5")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--peer", type=Path, help="Python with sentence-transformers and LanceDB")
    parser.add_argument("--scratch", type=Path, help="folder for temporary tables")
    chosen = parser.parse_args(args)
    # A small run never replaces the numbers of a full one.
    chosen.out = chosen.out or (RESULTS if chosen.size == "full" else RESULTS / chosen.size)
    return chosen


def _numbers(text: str) -> list[int]:
    numbers = [int(n) for n in text.split(",")]
    unknown = [n for n in numbers if n not in BARS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no bar {unknown[0]}")
    return numbers


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
