"""The page that recipes end in: our numbers beside the paper's, from top to bottom."""

from collections.abc import Sequence
from pathlib import Path

from fedfa.recipes.lab import Lab, Results, Section
from fedfa.record import atomic, machine
from fedfa.report.grid import Grid
from fedfa.report.page import offline_page
from fedfa.report.static import save
from fedfa.report.templates import templates


def write_page(lab: Lab, sections: Sequence[Section], results: Results, name: str, command: str) -> Path:
    """Write NAME.html and figures/*.pdf, *.png into the lab's folder; returns the page."""
    figures = [figure for section in sections for figure in section.figures]
    for figure in figures:
        save(figure, lab.folder / "figures")
    text = offline_page(
        templates("fedfa.recipes").get_template("recipes.html"),
        title=sections[0].title if len(sections) == 1 else "The FedFa paper's tables and figures",
        figures=figures,
        introduction=introduction(lab),
        sections=sections,
        names=names(results),
        command=command,
        versions=", ".join(f"{key} {value}" for key, value in machine().items()),
    )
    page = lab.folder / f"{name}.html"
    with atomic(page) as file:
        file.write(text.encode())
    return page


def names(results: Results) -> Grid:
    """What to type for each strategy of the tables."""
    seen = {(c.title, c.spec): None for contest, _ in results for c in contest.contenders}
    return Grid("What the names stand for", ("Name", "fedfa compare --strategies"), list(seen))


def introduction(lab: Lab) -> str:
    more = ", and others where they are there" if len(lab.all_seeds) > len(lab.seeds) else ""
    return (
        "Our numbers beside those of Xu et al., FedFa: A Fully Asynchronous Training Paradigm for Federated Learning, "
        f"IJCAI 2024. Scale: {lab.scale}; {'seed' if len(lab.seeds) == 1 else 'seeds'} "
        f"{', '.join(map(str, lab.seeds))}{more}. Simulated by fedfa; times are virtual."
    )
