// Draws figures in the page's colours, light or dark.
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
