"""``fedfa strategies``, ``init``: the list of strategies, and a file to start from."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedfa.cli.console import AsJson, print_table
from fedfa.errors import ConfigError


def strategies(as_json: AsJson = False) -> None:
    """List the strategies with their papers and parameters."""
    from fedfa.cli.catalogue import catalogue_table
    from fedfa.strategies.catalogue import catalogue

    print_table(catalogue_table())
    if as_json:
        print(json.dumps(catalogue()))


def init(
    file: Annotated[Path, typer.Argument(help="Where to write the experiment.")] = Path("experiment.toml"),
) -> None:
    """Write a commented experiment file to start from."""
    from importlib.resources import files

    text = (files("fedfa.experiments") / "template.toml").read_text()
    try:
        with file.open("x") as handle:
            handle.write(text)
    except FileExistsError:
        raise ConfigError(f"{file}: exists already; give another name: fedfa init NAME.toml") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({error.strerror})") from error
    print(f"Wrote {file}. Run it with: fedfa run {file}")
