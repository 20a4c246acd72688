"""The frame of the page: everything that does not depend on the runs."""

from string import Template

STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5b6470; --paper: #ffffff; --card: #f5f6f8;
  --edge: #dfe3e8; --grid: #e6e9ed; --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #a0a8b3; --paper: #15181c; --card: #1e2227;
  --edge: #343a42; --grid: #2b3037; --accent: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", "DejaVu Sans", Arial, sans-serif; -webkit-text-size-adjust: 100%; }
main { max-width: 1040px; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 0 0 .3rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
p { margin: .3rem 0; }
.about, .caption, figcaption { color: var(--soft); font-size: .9rem; }
.verdict { font-size: 1.15rem; border-left: 4px solid var(--accent); padding: .2rem 0 .2rem .9rem;
  margin: 1.4rem 0 1.8rem; }
section { margin: 3rem 0 0; }
figure { margin: 0; }
figure + figure, .caption + figure { margin-top: 2rem; }
figcaption { margin-top: .5rem; }
.plot { width: 100%; }
.files { font-size: .85rem; white-space: nowrap; }
a { color: var(--accent); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .7rem; text-align: right; border-bottom: 1px solid var(--edge); white-space: nowrap;
  vertical-align: top; }
thead th { color: var(--soft); font-weight: 600; border-bottom-width: 2px; vertical-align: bottom; }
th:first-child, td.text { text-align: left; }
td.wide { white-space: normal; overflow-wrap: anywhere; }
tbody th { font-weight: 600; white-space: normal; min-width: 8.5rem; }
td small { color: var(--soft); }
.swatch { display: inline-block; width: .75em; height: .75em; border-radius: 2px; margin-right: .5em; }
pre { background: var(--card); border: 1px solid var(--edge); border-radius: 6px; padding: .8rem 1rem; overflow-x: auto;
  font: .85rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
summary { cursor: pointer; margin: .6rem 0; color: var(--accent); }
@media (max-width: 600px) { main { padding: 1.4rem .9rem 3rem; } h1 { font-size: 1.5rem; }
  section { margin-top: 2.2rem; } th, td { padding: .4rem .5rem; } }
@media print { section { break-inside: avoid; } }
"""

THEME = """
const phone = matchMedia("(max-width: 600px)").matches;
function theme() {
  const css = getComputedStyle(document.documentElement), get = (name) => css.getPropertyValue(name).trim();
  const ink = get("--ink");
  const all = { "font.color": ink, "hoverlabel.font.color": ink, "hoverlabel.bgcolor": get("--card") };
  for (const axis of ["xaxis", "yaxis"]) {
    all[axis + ".gridcolor"] = get("--grid");
    all[axis + ".linecolor"] = get("--edge");
  }
  return all;
}
function inflate(flat, into) {
  for (const [path, value] of Object.entries(flat)) {
    const keys = path.split("."), last = keys.pop();
    keys.reduce((at, key) => (at[key] ??= {}), into)[last] = value;
  }
  return into;
}
const family = getComputedStyle(document.body).fontFamily;
const pointer = matchMedia("(hover: hover)").matches;  // without one, the buttons would lie over the legend for good
const controls = { responsive: true, displaylogo: false, displayModeBar: phone || !pointer ? false : "hover",
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
function draw(name, figure) {
  const layout = inflate({ ...theme(), "font.family": family, "font.size": phone ? 11 : 13 }, figure.layout);
  if (phone) layout.dragmode = false;
  Plotly.react(name, figure.data, layout, controls);
}
function repaint(names) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const name of names()) Plotly.relayout(name, theme());
  });
}
"""
"""Draws figures in the page's colours, light or dark."""

SCRIPT = (
    THEME
    + """
const figures = JSON.parse(document.getElementById("figures").textContent);
for (const [name, figure] of Object.entries(figures)) draw(name, figure);
repaint(() => Object.keys(figures));
"""
)

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""The browser itself then refuses whatever would leave the page."""

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="$policy">
<title>$title</title>
<style>$style</style>
</head>
<body>
<main>
$body
</main>
<script>$plotly</script>
<script type="application/json" id="figures">$figures</script>
<script>$script</script>
</body>
</html>
""")
