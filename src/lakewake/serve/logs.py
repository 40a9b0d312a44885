"""The log of the server. Each line has its time in UTC and the client that it is about."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakewake.errors import ConfigError

if TYPE_CHECKING:
    from lakewake.progress import Reporter

#: Address and port of the client whose bytes are being handled; `-` for none.
CLIENT: ContextVar[str] = ContextVar("lakewake-client", default="-")
#: Characters that could end a line, move the cursor of a terminal or turn the direction of a text.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Lines(logging.Formatter):
    """`2025-03-01T12:00:00.123Z WARNING 192.0.2.7:5123 POST /indexes/…: 503: …`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, followed by a traceback if there is one."""
        line = f"{stamp(record.created)} {record.levelname} {CLIENT.get()} {one_line(record)}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def one_line(record: logging.LogRecord) -> str:
    """The message, with control characters escaped, so that no client can forge a line."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], record.getMessage())


def stamp(seconds: float | None = None) -> str:
    """A time in the format of the log; by default now."""
    when = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def dated(reporter: Reporter) -> Callable[[str], None]:
    """Show a line with the time before it, as in the lines of the log."""
    return lambda line: reporter.say(f"{stamp()} {line}")


def start_audit(file: str | None) -> None:
    """Write a line for each question to a file that only its owner may read, or to the log.

    Raises:
        ConfigError: the file cannot be written.
    """
    audit = logging.getLogger("lakewake.audit")
    audit.setLevel(logging.INFO)
    if file is None:
        return
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        handler = logging.FileHandler(file, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigError(
            f"the audit log {file} cannot be written: {error.strerror}",
            hint="check that its folder exists, or name another file as `audit` in [serve]",
        ) from error
    handler.setFormatter(Lines())
    audit.addHandler(handler)
    audit.propagate = False


def start_log(*, verbose: bool) -> None:
    """Log failures to standard error, and with `verbose` every request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    level = logging.INFO if verbose else logging.WARNING
    # Of the handler too: a log in a file may take more.
    handler.setLevel(level)
    logging.basicConfig(handlers=[handler], level=level)
    # Lines of this log already begin with the client.
    logging.getLogger("uvicorn.access").addFilter(_without_client)


def _without_client(record: logging.LogRecord) -> bool:
    """Remove the client from uvicorn's line for a request."""
    if isinstance(record.args, tuple) and len(record.args) == 5:
        record.msg, record.args = '"%s %s HTTP/%s" %d', record.args[1:]
    return True
