"""The command `rollfold`: one subcommand a file, each loaded when it is called."""

import importlib
import sys
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    import click

COMMANDS: Final = {
    "collect": (
        "rollfold.cli.collect:command",
        "Run every task on its agent and write enriched records.",
    ),
    "enrich": (
        "rollfold.cli.enrich:command",
        "Fold captured model calls into records that are there.",
    ),
    "proxy": (
        "rollfold.cli.proxy:proxy",
        "Record the model calls that pass through a reverse proxy.",
    ),
    "repair": ("rollfold.cli.repair:repair", "Put responses back together from their raw streams."),
}
"""Name: the module and the click command in it, and one line of help."""

EXIT_USAGE: Final = 2


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; the process ends with the subcommand's exit code."""
    from rollfold.errors import RollfoldError  # noqa: PLC0415 (the command line starts light)

    try:
        import click  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError:
        print("rollfold: install rollfold[collect] (click is missing)", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from None
    try:
        _group(click)(args=arguments, prog_name="rollfold")
    except (RollfoldError, OSError) as error:
        print(f"rollfold: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from None


def _group(library: Any) -> "click.Group":
    """Make the group; its subcommands are imported when they are asked for."""
    from rollfold import __version__  # noqa: PLC0415 (the command line starts light)

    class Lazy(library.Group):  # type: ignore[misc]  # click is loaded by then
        def list_commands(self, _context: Any) -> list[str]:
            return sorted(COMMANDS)

        def get_command(self, _context: Any, name: str) -> Any:
            found = COMMANDS.get(name)
            if found is None:
                return None
            module, _, attribute = found[0].partition(":")
            return getattr(importlib.import_module(module), attribute)

        def format_commands(self, _context: Any, formatter: Any) -> None:
            with formatter.section("Commands"):
                formatter.write_dl([(name, help_) for name, (_, help_) in sorted(COMMANDS.items())])

    group = Lazy("rollfold", help="Every captured model call, in its rollout's record.")
    return cast("click.Group", library.version_option(__version__, prog_name="rollfold")(group))
