"""The command line: ``fedfa run``, ``compare``, ``report`` and the others, a file for each group of commands.

Nothing heavy is imported before a command needs it, so that ``fedfa --help`` answers at once.
"""

import sys
from typing import Annotated

import typer
import typer.core

from fedfa.cli import deploying, elsewhere, measuring, observing, running, starting
from fedfa.cli.console import INTERRUPTED, Interrupted
from fedfa.errors import ConfigError, FedfaError

typer.core.HAS_RICH = False  # otherwise plain help texts would show an escape that only rich removes: \[required]

app = typer.Typer(
    name="fedfa",
    help="Fully asynchronous federated learning: simulate strategies on an exact virtual clock and compare them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(running.run)
app.command(short_help="Run several strategies under the same conditions.")(running.compare)
app.command(short_help="Rewrite the report page and figures of runs.")(running.report)
app.command(short_help="Show a run in progress on a page.")(observing.watch)
app.command(short_help="Aggregate a deployment again from its journal.")(observing.replay)
app.command(
    short_help="Make a table or figure of the FedFa paper.", context_settings=elsewhere.PASSED_ON, add_help_option=False
)(elsewhere.paper)
app.command(short_help="Measure the paper's convergence bound on a run.")(observing.theory)
app.command(short_help="Measure ours against baselines, with ratios.")(measuring.bench)
app.command()(starting.strategies)
app.command()(starting.init)

deploy = typer.Typer(help="Train on real sites with Flower.", no_args_is_help=True, rich_markup_mode=None)
deploy.command("init")(deploying.deploy_init)
deploy.command("try")(deploying.deploy_try)
app.add_typer(deploy, name="deploy")


def _version(wanted: bool) -> None:
    if wanted:
        from fedfa import __version__

        print(f"fedfa {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself."""


def main() -> None:
    """Entry point: every expected error is one line on stderr."""
    try:
        if app(standalone_mode=False) == INTERRUPTED:  # what typer makes of a Ctrl-C that no command has caught
            raise KeyboardInterrupt
    except FedfaError as error:
        print(f"fedfa: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except Interrupted as pause:
        print(str(pause), file=sys.stderr)
        sys.exit(INTERRUPTED)
    except (KeyboardInterrupt, typer.Abort):
        print("fedfa: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.filename is None:  # not about a named file
            raise
        print(f"fedfa: {error.filename}: {error.strerror}; choose another place, or make room there", file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        if isinstance(error, _click_error()):
            error.show()  # pyright: ignore[reportAttributeAccessIssue]
            sys.exit(error.exit_code)  # pyright: ignore[reportAttributeAccessIssue]
        raise


def _click_error() -> type[Exception]:
    import click

    return click.ClickException
