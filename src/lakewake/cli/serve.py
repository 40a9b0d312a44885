"""`lakewake serve`: search the indexes over HTTP, with a page."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakewake.cli.flags import Flags, config_option, with_flags
from lakewake.cli.indexes import opened
from lakewake.cli.screen import count, moment, print_block, print_json
from lakewake.cli.sync import refuse_nan
from lakewake.config.section import Section
from lakewake.config.serve import MOST_WORKERS, check_hosts
from lakewake.errors import LakewakeError, SetupError

if TYPE_CHECKING:
    from lakewake.config.settings import ServeSettings
    from lakewake.serve.opening import ServeOptions, Started

EXAMPLE = "lakewake serve --watch"


@click.option("--watch", is_flag=True, help="Build missing indexes, and follow every commit.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=86_400),
    default=1.0,
    callback=refuse_nan,
    metavar="SECONDS",
    help="Time between two looks at the table, with --watch.",
)
@click.option("--host", metavar="ADDRESS", help="Listen here; 127.0.0.1 unless configured.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="8377 unless configured; 0 for any free one."
)
@click.option("--keys", type=Path, metavar="FILE", help="Require one of the API keys in this file.")
@click.option("--insecure-no-auth", is_flag=True, help="Let in anyone who can reach the server.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Answer to this host name too; may be given several times.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_WORKERS),
    help="Processes that answer requests; 1 unless configured.",
)
@click.option("--part", hidden=True)
@config_option
@with_flags
def serve(
    watch: bool,
    interval: float,
    host: str | None,
    port: int | None,
    keys: Path | None,
    insecure_no_auth: bool,
    allowed_hosts: tuple[str, ...],
    workers: int | None,
    part: str | None,
    flags: Flags,
) -> int:
    """Serve search over HTTP, with a page at /. Starts a JVM only with --watch.

    Listens on this machine only, by default. Any other address needs keys or tokens.
    """
    try:
        from lakewake.serve.opening import Part, ServeOptions
        from lakewake.serve.run import serve as run
    except ImportError as error:
        raise SetupError(
            f"serving needs a package that is not installed: {error.name}",
            hint="pip install 'lakewake[serve]'",
        ) from error
    given = {
        "host": host,
        "port": port,
        "keys": str(keys) if keys else None,
        "allowed_hosts": check_hosts(Section("--allowed-host", {}), list(allowed_hosts)) or None,
        "workers": workers,
    }
    with opened(flags) as lake:
        settings = replace(lake.settings.serve, **_set(given))
        follow = (*sync_command(lake.settings.path, interval), *flags.log) if watch else ()
        options = ServeOptions(follow, insecure_no_auth, flags.verbose)
        command = worker_command(lake.settings.path, settings, options, flags.log)
        if part is None:
            options = replace(options, worker=command)
            show = (lambda s: print_json(s.as_dict())) if flags.json else show_started
        else:
            options, show = replace(options, part=Part.parse(part)), report_started
        try:
            ended = run(lake, settings, options, flags.reporter(), show)
        except LakewakeError as error:
            if part is None:
                raise
            # The parent shows it.
            print_json({"failed": error.as_dict()})
            return error.exit_code
    if not ended:
        # A stalled search still holds its thread, and Python would wait for it.
        sys.stdout.flush()
        os._exit(0)
    return 0


def sync_command(config: Path, interval: float) -> tuple[str, ...]:
    """The command that keeps all indexes of a configuration up to date.

    It stops by itself when its standard input closes, so it stops even if the server is killed.
    """
    start = (sys.executable, "-m", "lakewake.cli.tethered", "sync", "--watch")
    return (*start, "--interval", f"{interval:g}", "--config", str(config))


def worker_command(
    config: Path, settings: ServeSettings, options: ServeOptions, log: tuple[str, ...]
) -> tuple[str, ...]:
    """The command of a worker of this server, without its part. It ends as `sync_command` does."""
    given = [
        *("--config", str(config), "--host", settings.host),
        *(("--keys", settings.keys) if settings.keys else ()),
        *(part for name in settings.allowed_hosts for part in ("--allowed-host", name)),
    ]
    asked = {
        "--watch": options.follow,
        "--insecure-no-auth": options.insecure,
        "--verbose": options.verbose,
    }
    given += [flag for flag, is_on in asked.items() if is_on]
    start = (sys.executable, "-m", "lakewake.cli.tethered", "serve", "--quiet")
    return (*start, *given, *log, "--part")


def _set(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def show_started(started: Started) -> None:
    """Print the address, the indexes, and what is on and off."""
    facts = [(i["name"], _described(i)) for i in started.indexes]
    without = "off: this machine only" if started.local else "OFF: anyone may search"
    facts.append(("keys", "required" if started.keys else without))
    followed = "on: every commit is followed"
    facts.append(("watch", followed if started.watch else "off: `--watch` follows every commit"))
    if started.workers > 1:
        facts.append(("workers", f"{started.workers} processes"))
        if started.unshared:
            names = ", ".join(started.unshared)
            facts.append(("memory", f"not shared: {names}; a watch writes files that all map"))
    facts.append(("stop", "Ctrl-C"))
    print_block(f"serving {started.url}", facts)
    sys.stdout.flush()


def report_started(started: Started) -> None:
    """Let the parent know that this worker is ready."""
    print_json({"ready": {**started.as_dict(), "unshared": started.unshared}})


def _described(index: dict[str, Any]) -> str:
    if not index["instant"]:
        return "not built yet"
    return f"{count(index['rows'], 'row')}, table at {moment(index['instant'])}"
