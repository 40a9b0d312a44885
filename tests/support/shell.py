"""Commands of `lakewake` inside this process, in the Spark session that the tests share."""

from __future__ import annotations

import contextlib
import io
import subprocess
from pathlib import Path

import pytest

from lakewake.cli import run
from lakewake.spark import session


def run_here(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """What the executable does in a folder, without the seconds that a JVM of its own takes."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patched,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        # A command ends its session, which is everybody's here.
        patched.setattr(session, "stop_session", lambda: None)
        code = run(args)
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())
