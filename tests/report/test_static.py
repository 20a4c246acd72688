"""Figures for paper, which show the same as those for a screen."""

from pathlib import Path

from fedfa.report.interactive import as_plotly
from fedfa.report.shapes import Figure, Line, Note, Rule
from fedfa.report.static import draw, save
from fedfa.report.timeline import timeline_figure
from fedfa.runs.run import Run


def test_logarithmic_axes_in_both_drawings() -> None:
    layers = (Line("a", (1, 10, 100), (1, 10, 1000), "#000000", step=False), Rule(10, "ten"), Note(100, 1000, "end"))
    figure = Figure("f", "F", "", "x", "y", layers, x_range=(1, 100), x_log=True, y_log=True)
    (axes,) = draw(figure).axes
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_xlim()) == ("log", "log", (1, 100))
    layout = as_plotly(figure)["layout"]
    assert layout["xaxis"]["type"] == layout["yaxis"]["type"] == "log"
    assert layout["xaxis"]["range"] == [0, 2]
    assert layout["shapes"][0]["y0"] == 10
    assert [note["y"] for note in layout["annotations"]] == [1, 3]
    assert layout["annotations"][1]["x"] == 2
    assert "type" not in as_plotly(Figure("g", "G", "", "x", "y", layers))["layout"]["xaxis"]


def test_figures_are_drawn_alike_on_paper_and_screen(odd: list[Run], tmp_path: Path) -> None:
    figure = timeline_figure(odd)
    (axes,) = draw(figure).axes
    assert axes.get_yticklabels()[0].get_text() == figure.y_ticks[0][1]
    assert len(axes.collections) == len(as_plotly(figure)["data"]) == len(figure.layers)
    save(figure, tmp_path / "a")
    save(figure, tmp_path / "b")
    for kind, magic in (("pdf", b"%PDF"), ("png", b"\x89PNG")):
        content = (tmp_path / "a" / f"timeline.{kind}").read_bytes()
        assert content.startswith(magic)
        assert content == (tmp_path / "b" / f"timeline.{kind}").read_bytes(), "not the same bytes twice"
