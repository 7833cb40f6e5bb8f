"""`rollfold repair`: responses that a capture lost, from the raw text it kept."""

import sys
from pathlib import Path

import click

from rollfold import _core

SUFFIXES = (".capture.jsonl", ".capture.late.jsonl")


@click.command()
@click.argument(
    "directories",
    metavar="DIR...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing.")
@click.option(
    "--lock-wait",
    default=5.0,
    show_default=True,
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long to wait for a file that somebody is writing.",
)
def repair(directories: tuple[Path, ...], dry_run: bool, lock_wait: float) -> None:
    """Put responses together again from the raw text kept beside them.

    A record whose response is null, or says less than its response_raw, gets the response
    that the raw text adds up to. Each changed file is replaced under its lock; the file as
    it was stays beside it as FILE.orig. Exits with 1 where a file could not be repaired.
    """
    failed = False
    for directory in directories:
        paths = sorted(path for path in directory.iterdir() if path.name.endswith(SUFFIXES))
        if not paths:
            click.echo(f"{directory}: no captures")
        for path in paths:
            try:
                report = _core.repair_capture(path, dry_run=dry_run, lock_wait_s=lock_wait)
            except OSError as error:
                failed = True
                click.echo(f"{path}: {_reason(error)}", err=True)
            else:
                _say(path, report, dry_run=dry_run)
    if failed:
        sys.exit(1)


def _say(path: Path, report: _core.RepairReport, *, dry_run: bool) -> None:
    for line, call_id, remark in report.remarks:
        click.echo(f"{path}:{line}: {call_id or 'a call without id'}: {remark}")
    done = "would be repaired" if dry_run else "repaired"
    parts = [f"{report.repaired} of {report.records} records {done}"]
    if report.unreadable:
        parts.append(f"{report.unreadable} unreadable lines left as they are")
    if report.kept_as is not None:
        parts.append(f"the file as it was is {report.kept_as.name}")
    click.echo(f"{path}: {'; '.join(parts)}")


def _reason(error: OSError) -> str:
    """Give an OS error as one line without the path that the line begins with."""
    return str(error.strerror or error)
