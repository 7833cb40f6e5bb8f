"""`rollfold collect`."""

import asyncio
import functools
import json
import signal
import sys
from pathlib import Path
from typing import Any, Final

import click

from rollfold import extras
from rollfold.cli.options import Agent, Duration, HostPort
from rollfold.collect import CollectOptions, collect_async
from rollfold.collect.run import Collector
from rollfold.collect.show import Quiet, print_summary, progress_for
from rollfold.collect.summary import Summary

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_NO_CAPTURES: Final = 3
EXIT_UNFINISHED: Final = 4

_HELP: Final = """Run every task of a file on its agent; write one enriched record for each rollout.

Beside OUTPUT.jsonl it writes OUTPUT_materialized_inputs.jsonl (the rows as they are
sent), OUTPUT_dispatched.jsonl (a line before each dispatch) and OUTPUT_failures.jsonl
(one line for each attempt without a result). After a kill, --resume goes on.

Ctrl-C once finishes what runs and starts nothing more, twice cancels it.

Exit codes: 0 every rollout has a result; 1 some failed for good; 2 it could not start
or write; 3 --require-captures, and no rollout has a recorded model call; 4 it ended
early, --resume goes on.
"""

_file = click.Path(dir_okay=False, path_type=Path)
_directory = click.Path(file_okay=False, path_type=Path)


@click.command("collect", help=_HELP)
@click.option("--input", "source", type=_file, required=True, help="Rows, JSON lines.")
@click.option("--output", type=_file, required=True, help="Records, JSON lines.")
@click.option("--agent", "agents", type=Agent(), multiple=True, help="An agent server's address.")
@click.option("--head", type=HostPort(), help="A gym's head server, which names the agents.")
@click.option("--captures", type=_directory, multiple=True, help="Where captures are written.")
@click.option("--repeats", type=click.IntRange(1), default=1, help="Rollouts of each row.")
@click.option("--concurrency", type=click.IntRange(1), default=64, help="Rollouts at once.")
@click.option("--resume", is_flag=True, help="Go on with the run whose files are there.")
@click.option("--budget", type=Duration(), help="Time for the whole run, as 90, 30m, 2h.")
@click.option("--run-timeout", type=Duration(), default="4h", help="Time for one rollout.")
@click.option("--form", type=click.Choice(["full", "packed"]), default="full", help="Of records.")
@click.option("--delete-captures", is_flag=True, help="Once their records are on the disk.")
@click.option("--retries", type=click.IntRange(0), default=0, help="New attempts of a failure.")
@click.option("--limit", type=click.IntRange(1), help="Use the first rows only.")
@click.option("--success-at", type=float, default=1.0, help="A reward that is a success.")
@click.option("--require-captures", is_flag=True, help="Exit 3 if there are none.")
@click.option("--no-observability", is_flag=True, help="Leave ng_perf out.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, no progress.")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    """Collect, print the summary, exit with what came of it."""
    agents = dict(options["agents"])
    if len(agents) != len(options["agents"]):
        raise click.BadParameter("an agent is named twice", param_hint="--agent")
    if not agents and options["head"] is None:
        raise click.UsageError("give --agent NAME=URL or --head HOST:PORT")
    if not options["as_json"]:
        extras.load("rich", "collect")
    settings = CollectOptions(
        input=options["source"],
        output=options["output"],
        agents=agents,
        head_server_config=options["head"],
        captures=options["captures"],
        repeats=options["repeats"],
        concurrency=options["concurrency"],
        resume=options["resume"],
        budget_s=options["budget"],
        run_timeout_s=options["run_timeout"],
        form=options["form"],
        delete_captures=options["delete_captures"],
        retries=options["retries"],
        limit=options["limit"],
        observability_enabled=not options["no_observability"],
        success_at=options["success_at"],
    )
    summary = asyncio.run(_run(settings, quiet=options["as_json"]))
    if options["as_json"]:
        print(json.dumps(summary.as_dict()))
    else:
        print_summary(summary)
        print(f"records: {settings.output}")
    context.exit(_exit_code(summary, require_captures=options["require_captures"]))


async def _run(settings: CollectOptions, *, quiet: bool) -> Summary:
    return await collect_async(
        settings,
        progress=(lambda _: Quiet()) if quiet else progress_for,
        started=_listen_to_ctrl_c,
    )


def _listen_to_ctrl_c(collector: Collector) -> None:
    """Drain at the first Ctrl-C or SIGTERM, interrupt at the second."""
    loop = asyncio.get_running_loop()
    heard = 0

    def hear() -> None:
        nonlocal heard
        heard += 1
        if heard == 1:
            print("finishing what runs; again to cancel it", file=sys.stderr, flush=True)
            collector.drain()
        else:
            collector.interrupt()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, functools.partial(hear))


def _exit_code(summary: Summary, *, require_captures: bool) -> int:
    if require_captures and not summary.with_calls:
        return EXIT_NO_CAPTURES
    if summary.unfinished:
        return EXIT_UNFINISHED
    return EXIT_FAILED if summary.failed else EXIT_DONE
