"""`rollfold enrich`."""

import json
import sys
from pathlib import Path
from typing import Any, Final

import click

from rollfold import extras
from rollfold.collect.offline import EnrichOptions, enrich_file
from rollfold.collect.show import Quiet, print_summary, progress_for

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1

_HELP: Final = """Fold captured model calls into records that are there already.

Reads JSON lines, full or packed, and compressed logs (.zst); keeps one record at a time
in memory; writes to a temporary file that takes OUTPUT's place at the end.

Exit codes: 0 every record is enriched; 1 some lines could not be read or enriched (the
latter are written as they came); 2 it could not start or write.
"""

_file = click.Path(dir_okay=False, path_type=Path)
_directory = click.Path(file_okay=False, path_type=Path)


@click.command("enrich", help=_HELP)
@click.argument("source", type=_file)
@click.option("--captures", type=_directory, multiple=True, required=True, help="Where they are.")
@click.option("-o", "--output", type=_file, help="May be the source itself.")
@click.option("--form", type=click.Choice(["full", "packed"]), default="full", help="Of records.")
@click.option("--threads", type=click.IntRange(1), help="By default one a core.")
@click.option("--dry-run", is_flag=True, help="Print the summary, write and delete nothing.")
@click.option("--delete-captures", is_flag=True, help="Once their records are on the disk.")
@click.option("--success-at", type=float, default=1.0, help="A reward that is a success.")
@click.option("--no-observability", is_flag=True, help="Leave ng_perf out.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, no progress.")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    """Enrich, print the summary, exit with what came of it."""
    if options["output"] is None and not options["dry_run"]:
        raise click.UsageError("give --output FILE or --dry-run")
    missing = [str(path) for path in options["captures"] if not path.is_dir()]
    if missing:
        raise click.BadParameter(f"no such directory: {missing[0]}", param_hint="--captures")
    if not options["as_json"]:
        extras.load("rich", "collect")
    settings = EnrichOptions(
        source=options["source"],
        output=options["output"],
        captures=options["captures"],
        form=options["form"],
        threads=options["threads"],
        dry_run=options["dry_run"],
        delete_captures=options["delete_captures"],
        observability_enabled=not options["no_observability"],
        success_at=options["success_at"],
    )
    quiet = options["as_json"]
    summary = enrich_file(settings, Quiet if quiet else lambda: progress_for(None, "records"))
    if options["as_json"]:
        print(json.dumps(summary.as_dict()))
    else:
        print_summary(summary)
        print("nothing written" if settings.dry_run else f"records: {settings.output}")
    if summary.unreadable:
        print(f"rollfold: {summary.unreadable} lines could not be read", file=sys.stderr)
    context.exit(EXIT_FAILED if summary.unreadable or summary.enrich_errors else EXIT_DONE)
