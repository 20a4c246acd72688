"""Pages from their files: the templates, styles and scripts in a package's ``assets`` folder."""

from functools import cache, partial

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

OWN = "fedfa.report"


@cache
def templates(package: str = OWN) -> Environment:
    """The templates of a package; they may use those of the report as well.

    Everything in a page is escaped, except styles and scripts, which are marked as ``safe``.
    """
    loader = ChoiceLoader([PackageLoader(name, "assets") for name in dict.fromkeys((package, OWN))])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.globals["asset"] = partial(asset, package=package)
    return environment


def asset(name: str, package: str = OWN) -> str:
    """The text of a style or a script."""
    environment = templates(package)
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


@cache
def plotly() -> str:
    """The script that draws the figures of a page."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()
