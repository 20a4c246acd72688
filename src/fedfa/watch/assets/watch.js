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
  rows("longest", data.longest.map((one) => one.cells), data.longest.map((one) => one.slow));
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
    if (answer.status === 500) return stand("gone", "fedfa watch had an error; see its terminal");
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
