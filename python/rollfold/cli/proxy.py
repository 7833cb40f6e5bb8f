"""`rollfold proxy`: record the calls of a model server that one cannot change."""

import asyncio
import logging
import os
import signal
from pathlib import Path

import click

from rollfold.capture.proxy import CaptureProxy
from rollfold.capture.recorder import Durability, Recorder


def octal(_context: click.Context, _option: click.Parameter, value: str) -> int:
    """Read permissions as chmod takes them: 640."""
    try:
        mode = int(value, 8)
    except ValueError:
        mode = -1
    if not 0o400 <= mode <= 0o777:
        raise click.BadParameter(f"{value!r} are no octal permissions like 640")
    return mode


@click.command()
@click.option("--upstream", required=True, metavar="URL", help="The model server's base URL.")
@click.option(
    "--captures",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The directory the captures go to; made if it is not there.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", default=8300, show_default=True, type=click.IntRange(0, 65535), help="0 takes any."
)
@click.option("--server-name", help="The name in every exchange's model_ref.")
@click.option(
    "--durability",
    default="record",
    show_default=True,
    type=click.Choice(["record", "batch", "none"]),
    help="When a record is safe from a crash of the machine.",
)
@click.option(
    "--max-body-bytes",
    type=click.IntRange(min=0),
    help="Keep at most this much of each body; all by default.",
)
@click.option(
    "--connect-timeout",
    default=10.0,
    show_default=True,
    help="Seconds to wait for a connection to the upstream.",
)
@click.option(
    "--read-timeout",
    default=600.0,
    show_default=True,
    help="Seconds the upstream may be silent; 0 for no bound.",
)
@click.option(
    "--drain",
    default=60.0,
    show_default=True,
    help="Seconds that calls in flight get to finish at the end.",
)
@click.option("--file-mode", default="600", callback=octal, help="Permissions of the files.")
@click.option("--dir-mode", default="700", callback=octal, help="Permissions of the directory.")
def proxy(  # noqa: PLR0917 - click calls it by keyword
    upstream: str,
    captures: Path,
    host: str,
    port: int,
    server_name: str | None,
    durability: Durability,
    max_body_bytes: int | None,
    connect_timeout: float,
    read_timeout: float,
    drain: float,
    file_mode: int,
    dir_mode: int,
) -> None:
    """Forward to a model server and capture its calls.

    Point clients at http://HOST:PORT/ng-rollout/ROLLOUT_ID; calls without that prefix are
    forwarded and not recorded. GET /healthz answers for the proxy. SIGINT and SIGTERM let
    the calls in flight finish first.
    """
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    standing = captures
    while not standing.exists():
        standing = standing.parent
    if not standing.is_dir() or not os.access(standing, os.W_OK | os.X_OK):
        raise click.ClickException(f"--captures: cannot write to {standing}")
    recorder = Recorder(
        captures,
        server_name=server_name,
        max_body_bytes=max_body_bytes,
        durability=durability,
        file_mode=file_mode,
        dir_mode=dir_mode,
    )
    try:
        server = CaptureProxy(
            upstream,
            recorder,
            connect_timeout_s=connect_timeout,
            read_timeout_s=read_timeout or None,
            drain_s=drain,
        )
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--upstream") from error
    try:
        asyncio.run(_serve(server, host, port, upstream, captures))
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error}") from error


async def _serve(server: CaptureProxy, host: str, port: int, upstream: str, captures: Path) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        bound = await server.start(host, port)
        click.echo(f"rollfold proxy: http://{host}:{bound} -> {upstream}, captures in {captures}")
        await stop.wait()
        click.echo("rollfold proxy: finishing calls in flight")
    finally:
        await server.stop()
