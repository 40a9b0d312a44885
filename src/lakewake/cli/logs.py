"""`--log-file`: what a command reports, as lines of JSON with their times.

A line is one object: `time` (UTC), `level`, `message`, and `logger`; for the end of a sync also
`report`, as `--json` prints it; for a failure also `error`, `landed` and `hint`.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lakewake.errors import ConfigError, LakewakeError
from lakewake.show.redact import without_secrets

_log = logging.getLogger("lakewake.cli")
_started: list[logging.Handler] = []


class JsonLines(logging.Formatter):
    """One object in one line, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": without_secrets(record.getMessage()),
            "logger": record.name,
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["trace"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


def start(file: Path, level: str) -> None:
    """Write what is reported from now on to a file, after what it holds.

    Raises:
        ConfigError: the file cannot be written.
    """
    stop()
    try:
        handler = logging.FileHandler(file, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigError(
            f"the log {file} cannot be written: {error.strerror}",
            hint="check that its folder exists and can be written, or name another --log-file",
        ) from error
    handler.setFormatter(JsonLines())
    handler.setLevel(level.upper())
    for name in ("lakewake", "uvicorn"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        # Never less than goes to standard error.
        logger.setLevel(min(logging.getLevelName(level.upper()), logging.WARNING))
    _started.append(handler)


def stop() -> None:
    """End the log: the process goes on with another command."""
    for handler in _started:
        for name in ("lakewake", "uvicorn"):
            logging.getLogger(name).removeHandler(handler)
            logging.getLogger(name).setLevel(logging.NOTSET)
        handler.close()
    _started.clear()


def started() -> bool:
    """Whether there is a log."""
    return bool(_started)


def log_line(text: str) -> None:
    """Log a line of progress."""
    if _started:
        _log.info("%s", text)


def log_report(text: str, report: dict[str, Any]) -> None:
    """Log what a command did."""
    if _started:
        _log.info("%s", text, extra={"facts": {"report": report}})


def log_error(error: LakewakeError, index: str, trace: BaseException | None = None) -> None:
    """Log a failure."""
    if not _started:
        return
    facts = {"error": type(error).__name__, "landed": error.landed, "hint": error.hint}
    if index:
        facts["index"] = index
    _log.error("%s", error.fact, extra={"facts": facts}, exc_info=trace)
