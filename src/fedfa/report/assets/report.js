const figures = JSON.parse(document.getElementById("figures").textContent);
for (const [name, figure] of Object.entries(figures)) draw(name, figure);
repaint(() => Object.keys(figures));
