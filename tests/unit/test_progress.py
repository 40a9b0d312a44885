import io

import pytest

from lakewake.progress import (
    Counted,
    Counting,
    Lines,
    Logged,
    Silent,
    Steps,
    Terminal,
    choose_reporter,
    finished_line,
    running_line,
    step,
    time_left,
    watched,
)
from support.watched import Watching


class Clock:
    """A clock that moves only on request."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines_and_clock() -> tuple[Lines, Clock, io.StringIO]:
    clock, stream = Clock(), io.StringIO()
    return Lines(stream, clock), clock, stream


def test_a_stage_that_ends_leaves_one_line_with_count_time_and_rate() -> None:
    lines, clock, stream = lines_and_clock()
    with lines.stage("embed", 2000) as stage:
        stage.advance(1500)
        stage.advance(500)
        clock.now += 4
    assert stream.getvalue() == "embed: 2,000 in 4.0 s, 500/s\n"


def test_a_stage_reports_its_progress_every_ten_seconds() -> None:
    lines, clock, stream = lines_and_clock()
    with lines.stage("embed", 1000) as stage:
        for _ in range(25):
            clock.now += 1
            stage.advance(10)
        assert stream.getvalue().splitlines() == [
            "embed: 100 of 1,000 (10 %), 10 s, 10/s, 90 s left",
            "embed: 200 of 1,000 (20 %), 20 s, 10/s, 80 s left",
        ]


def test_a_stage_that_fails_does_not_claim_to_be_done() -> None:
    lines, _, stream = lines_and_clock()
    with pytest.raises(ValueError, match="broken"), lines.stage("read"):
        raise ValueError("broken")
    assert stream.getvalue() == ""


def test_nested_stages_each_leave_their_own_line_inner_first() -> None:
    lines, clock, stream = lines_and_clock()
    with lines.stage("write") as outer, lines.stage("embed") as inner:
        inner.advance(2)
        outer.advance(1)
        clock.now += 1
    assert [line.split()[:2] for line in stream.getvalue().splitlines()] == [
        ["embed:", "2"],
        ["write:", "1"],
    ]


def test_a_stage_that_ends_at_once_leaves_no_line() -> None:
    lines, clock, stream = lines_and_clock()
    with lines.stage("read") as stage:
        stage.advance(1)
        clock.now += 0.4
    assert stream.getvalue() == ""


def test_a_stage_without_counts_shows_only_its_duration() -> None:
    assert finished_line("start Spark", 0, 4.23) == "start Spark: 4.2 s"


def test_a_stage_of_unknown_size_shows_its_count_without_a_share() -> None:
    assert running_line("read", 1200, None, 3.0) == "read: 1,200, 3 s, 400/s"


@pytest.mark.parametrize(
    ("done", "total", "seconds", "left"),
    [
        (1, 100, 1.0, "99 s left"),
        (1, 1000, 1.0, "17 min left"),
        (10, 100_000, 10.0, "27.8 h left"),
        (0, 100, 9.0, ""),
        (100, 100, 9.0, ""),
        (120, 100, 9.0, ""),
        (5, None, 9.0, ""),
        (5, 100, 0.1, ""),
    ],
)
def test_the_time_left_is_that_of_the_rate_so_far(
    done: int, total: int | None, seconds: float, left: str
) -> None:
    assert time_left(done, total, seconds) == left


def test_a_slow_stage_shows_its_rate_with_a_decimal() -> None:
    assert finished_line("write", 2, 16.0) == "write: 2 in 16.0 s, 0.1/s"


def test_the_last_step_of_a_stage_is_only_in_its_final_line() -> None:
    lines, clock, stream = lines_and_clock()
    with lines.stage("write", 2) as stage:
        clock.now += 20
        stage.advance(2)
    assert stream.getvalue() == "write: 2 in 20.0 s, 0.1/s\n"


def test_a_stage_of_nothing_does_not_divide_by_zero() -> None:
    assert running_line("read", 0, 0, 0.0) == "read: 0, 0 s"


def test_a_terminal_shows_bars_with_counts_and_leaves_one_line_per_stage() -> None:
    screen, clock = Screen(), Clock()
    terminal = Terminal(screen, clock)
    with terminal.stage("read", 10) as read:
        read.advance(4)
        with terminal.stage("embed [bold]", 7) as embed:
            embed.advance(7)
            clock.now += 2
            terminal._progress.refresh()
            assert "4 of 10" in screen.getvalue()
            assert "7 of 7" in screen.getvalue()
        read.advance(6)
    shown = screen.getvalue()
    assert "embed [bold]: 7 in 2.0 s" in shown
    assert "read: 10 in 2.0 s" in shown


def test_a_failed_stage_removes_its_bar_from_the_terminal() -> None:
    screen = Screen()
    terminal = Terminal(screen)
    with pytest.raises(ValueError, match="broken"), terminal.stage("read", 10):
        raise ValueError("broken")
    assert not terminal._progress.tasks
    assert not terminal._progress.live.is_started
    assert "read: " not in screen.getvalue()


def test_a_terminal_can_be_used_again_after_its_stages_ended() -> None:
    screen, clock = Screen(), Clock()
    terminal = Terminal(screen, clock)
    for _ in range(2):
        with terminal.stage("read", 1) as stage:
            stage.advance(1)
            clock.now += 1
    assert screen.getvalue().count("read: 1 in") == 2


def test_bars_are_chosen_for_a_terminal_and_lines_for_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(choose_reporter(Screen()), Terminal)
    assert isinstance(choose_reporter(io.StringIO()), Lines)


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(choose_reporter(Screen()), Lines)


def test_quiet_prints_nothing() -> None:
    screen = Screen()
    reporter = choose_reporter(screen, quiet=True)
    assert isinstance(reporter, Silent)
    reporter.say("hello")
    with reporter.stage("read", 1) as stage:
        stage.advance(1)
    assert screen.getvalue() == ""


def test_messages_are_not_interpreted_as_markup() -> None:
    screen = Screen()
    Terminal(screen).say("column [red] of [/]")
    assert "column [red] of [/]" in screen.getvalue()


def test_a_terminal_shows_a_step_while_it_runs_and_leaves_no_line() -> None:
    screen, clock = Screen(), Clock()
    terminal = Terminal(screen, clock)
    with terminal.stage("upkeep"), terminal.step("count words", 8) as words:
        words.advance(3)
        clock.now += 2
        terminal._progress.refresh()
        assert "count words" in screen.getvalue()
        assert "3 of 8" in screen.getvalue()
    assert "upkeep: 2.0 s" in screen.getvalue()
    assert "count words: 3" not in screen.getvalue()


def test_a_step_of_unknown_size_shows_no_count_and_no_time_left() -> None:
    screen = Screen()
    terminal = Terminal(screen)
    with terminal.step("train codes"):
        terminal._progress.refresh()
        shown = screen.getvalue()
    assert "train codes" in shown
    assert "0:00:0" in shown
    assert " of " not in shown
    assert "left" not in shown
    assert "%" not in shown


def test_a_step_is_not_shown_where_there_is_no_terminal() -> None:
    lines, clock, stream = lines_and_clock()
    logged: list[str] = []
    for reporter in (lines, Silent(), Logged(lines, logged.append, clock)):
        assert watched(reporter) is None
        with step(reporter, "count words", 8) as words:
            clock.now += 20
            words.advance(8)
    assert (stream.getvalue(), logged) == ("", [])


def test_a_terminal_is_watched_behind_a_log_too() -> None:
    terminal = Terminal(Screen())
    assert watched(terminal) is terminal
    assert watched(Logged(terminal, lambda line: None)) is terminal


def test_steps_begin_grow_and_end_with_what_is_counted() -> None:
    seen = Watching()
    steps = Steps(seen)
    steps.show({1: Counted("tasks", 2, 5)})
    steps.show({1: Counted("tasks", 5, 5), 2: Counted("tasks", 0, 3)})
    steps.show({2: Counted("tasks", 1, 3)})
    first, second = seen.steps
    assert (first.is_complete, second.ended, second.done) == (True, False, 1)
    steps.close()
    assert second.ended


def test_a_count_never_falls_and_never_passes_its_total() -> None:
    seen = Watching()
    steps = Steps(seen)
    for done in (3, 1, 4, 9):
        steps.show({1: Counted("tasks", done, 5)})
    assert seen.steps[0].counts == [0, 3, 4, 5]


def test_what_is_counted_can_be_read_while_it_runs() -> None:
    counting = Counting("read", 10)
    counting.advance(4)
    assert counting.counted == Counted("read", 4, 10)
