"""The page: empty places, and a script that fills them anew once a second."""

from string import Template

from fedfa.report.template import STYLE, THEME

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_STYLE = """
main { max-width: 1200px; padding-top: 1.6rem; }
.head { display: flex; flex-wrap: wrap; gap: .4rem 1rem; align-items: baseline; }
.state { font-size: .95rem; font-weight: 600; }
.state::before, .dot { content: ""; display: inline-block; width: .65em; height: .65em; border-radius: 50%;
  margin-right: .5em; background: var(--soft); }
.running::before, .dot.running { background: #009e73; animation: pulse 2s infinite; }
.finished::before, .dot.finished { background: var(--accent); }
.silent::before, .stopped::before, .dot.silent, .dot.stopped { background: #e69f00; }
.failed::before, .gone::before, .dot.failed { background: #d55e00; }
@keyframes pulse { 50% { opacity: .35; } }
@media (prefers-reduced-motion: reduce) { .running::before, .dot.running { animation: none; } }
.bar { height: 5px; background: var(--edge); border-radius: 3px; margin: .8rem 0 1.2rem; overflow: hidden; }
.bar div { height: 100%; width: 0; background: var(--accent); transition: width .6s; }
.tiles { display: grid; grid-template-columns: repeat(5, 1fr); gap: .7rem; }
.tile { background: var(--card); border: 1px solid var(--edge); border-radius: 8px; padding: .6rem .8rem;
  min-width: 0; }
.tile span, .tile small { display: block; color: var(--soft); font-size: .8rem; line-height: 1.35; }
.tile b { display: block; font-size: 1.35rem; line-height: 1.3; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
.figures { display: grid; grid-template-columns: 1fr 1fr; gap: 1.6rem; margin-top: 1.8rem; }
.figures figure, figure + figure { min-width: 0; margin: 0; }
.whole { grid-column: 1 / -1; }
figcaption:empty { display: none; }
#runs { max-height: 16rem; overflow: auto; margin: 0 0 1.2rem; border: 1px solid var(--edge); border-radius: 8px; }
#runs tr { cursor: pointer; }
#left-out { margin: .3rem .6rem; }
#left-out:empty { display: none; }
#runs th { white-space: nowrap; }
#runs tr.chosen { background: var(--card); }
#runs button { font: inherit; font-weight: 600; color: inherit; background: none; border: 0; padding: 0;
  cursor: pointer; text-align: left; overflow-wrap: anywhere; }
#longest td:first-child, #reasons td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.slow td { color: #b35900; font-weight: 600; }
@media (prefers-color-scheme: dark) { .slow td { color: #e69f00; } }
[hidden] { display: none !important; }
@media (max-width: 900px) { .tiles { grid-template-columns: repeat(3, 1fr); } .figures { grid-template-columns: 1fr; } }
@media (max-width: 600px) { .tiles { grid-template-columns: 1fr 1fr; gap: .5rem; } .tile b { font-size: 1.15rem; } }
"""

SCRIPT = (
    THEME
    + """
const $ = (id) => document.getElementById(id);
const drawn = {};
let run = new URLSearchParams(location.hash.slice(1)).get("run") ?? "";

function set(element, text) { if (element.textContent !== text) element.textContent = text; }
function fill(parent, number, make) {
  while (parent.children.length > number) parent.lastChild.remove();
  while (parent.children.length < number) parent.append(make());
  return [...parent.children];
}
function element(tag, ...children) {
  const made = document.createElement(tag);
  made.append(...children);
  return made;
}
function rows(id, texts, mark) {
  const found = fill($(id).tBodies[0], texts.length, () => element("tr"));
  texts.forEach((cells, number) => {
    fill(found[number], cells.length, () => element("td")).forEach((cell, n) => set(cell, cells[n]));
    if (mark) found[number].className = mark[number] ? "slow" : "";
  });
  $(id).closest("section").hidden = texts.length === 0;
}
function stand(kind, text) {
  $("state").className = "state " + kind;
  set($("state"), text);
}
function choose(name) {
  run = name;
  history.replaceState(null, "", "#run=" + encodeURIComponent(name));
  ask();
}
function list(runs, chosen) {
  $("runs").hidden = runs.length < 2;
  const lines = fill($("runs").querySelector("tbody"), runs.length, () => {
    const cells = [1, 2, 3, 4].map(() => element("td"));
    const line = element("tr", element("th", element("span"), element("button")), ...cells);
    line.addEventListener("click", () => choose(line.dataset.name));
    return line;
  });
  runs.forEach((one, number) => {
    const line = lines[number], [head, ...cells] = line.children;
    line.dataset.name = one.name;
    line.className = one.name === chosen ? "chosen" : "";
    head.firstChild.className = "dot " + one.kind;
    set(head.lastChild, one.name);
    [one.kind, one.done, one.updates, one.accuracy].forEach((text, n) => set(cells[n], text));
  });
}
function show(data) {
  stand(data.kind, data.standing);
  list(data.runs, data.run);
  set($("left-out"), data.left_out);
  $("content").hidden = !data.figures;
  set($("title"), data.title ?? "fedfa watch");
  document.title = (data.title ? data.title + " – " + data.kind : data.kind) + " – fedfa";
  if (!data.figures) return;
  if (data.kind !== "waiting") run = data.run;
  set($("about"), data.about);
  $("done").style.width = 100 * data.share_done + "%";
  const tiles = fill($("tiles"), data.tiles.length, () => {
    const tile = element("div", element("span"), element("b"), element("small"));
    tile.className = "tile";
    return tile;
  });
  data.tiles.forEach((texts, n) => texts.forEach((text, part) => set(tiles[n].children[part], text)));
  rows("longest", data.longest.map((cells) => cells.slice(0, 4)), data.longest.map((cells) => cells[4]));
  rows("reasons", data.reasons);
  for (const [name, figure] of Object.entries(data.figures)) {
    const text = JSON.stringify(figure);
    if (drawn[name] === text) continue;
    drawn[name] = text;
    const place = $(name).closest("figure");
    set(place.querySelector("h2"), figure.title);
    set(place.querySelector("figcaption"), figure.caption);
    figure.layout.uirevision = data.run;
    draw(name, figure);
  }
}
async function ask() {
  try {
    const answer = await fetch("data.json?run=" + encodeURIComponent(run), { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    show(await answer.json());
  } catch (error) {
    stand("gone", "fedfa watch does not answer; start it again");
  }
}
async function go() {
  await ask();
  setTimeout(go, document.hidden ? 5000 : 1000);
}
repaint(() => Object.keys(drawn));
go();
"""
)


def _figure(name: str, wide: bool = False) -> str:
    return (
        f'<figure{" class=whole" if wide else ""}><h2></h2><div class="plot" id="{name}" role="img"></div>'
        "<figcaption></figcaption></figure>"
    )


def _table(name: str, title: str, *columns: str) -> str:
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    return (
        f'<section hidden><h2>{title}</h2><div class="scroll"><table id="{name}"><thead><tr>{head}</tr></thead>'
        "<tbody></tbody></table></div></section>"
    )


PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fedfa watch</title>
<link rel="icon" href="data:,">
<style>$style</style>
</head>
<body>
<main>
<div class="head"><h1 id="title">fedfa watch</h1><div id="state" class="state" role="status">connecting</div></div>
<div id="runs" hidden><table><thead><tr><th scope="col">run</th><th scope="col">state</th><th scope="col">done</th>
<th scope="col">updates</th><th scope="col">accuracy</th></tr></thead><tbody></tbody></table>
<p class="about" id="left-out"></p></div>
<div id="content" hidden>
<p class="about" id="about"></p>
<div class="bar"><div id="done"></div></div>
<div class="tiles" id="tiles"></div>
<div class="figures">$figures</div>
$tables
</div>
</main>
<script src="plotly.js"></script>
<script src="watch.js"></script>
</body>
</html>
""").substitute(
    style=STYLE + _STYLE,
    figures=_figure("accuracy")
    + _figure("loss")
    + _figure("timeline", wide=True)
    + _figure("pace")
    + _figure("staleness"),
    tables=_table("longest", "In flight for the longest", "client", "since", "for", "versions behind")
    + _table("reasons", "Refused, failed, lost", "reason", "updates"),
)
