// Draws a chart in the place of its picture, from the specification beside it: a tooltip for each point, which a click or
// Enter follows. One point is a tab stop; arrows go on from there. Without this script, the picture stays.
const options = { ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: { disableDefaultStyle: true } };
const hover = (point, kind) => {
  const { x, y, width, height } = point.getBoundingClientRect();
  point.dispatchEvent(new PointerEvent(kind, { bubbles: true, clientX: x + width / 2, clientY: y + height / 2 }));
};
const reach = (place) => {
  const points = [...place.querySelectorAll(".points_marks path")];
  points.sort((a, b) => a.getBoundingClientRect().x - b.getBoundingClientRect().x);
  points.forEach((point, i) => {
    point.tabIndex = i === points.length - 1 ? 0 : -1;
    point.addEventListener("focus", () => hover(point, "pointermove"));
    point.addEventListener("blur", () => hover(point, "pointerout"));
    point.addEventListener("keydown", (event) => {
      if (event.key === "Enter") return hover(point, "click");
      const next = points[i + { ArrowLeft: -1, ArrowRight: 1 }[event.key]];
      if (!next) return;
      event.preventDefault();
      point.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  });
};
// vega-tooltip takes this element; its own would be outside of every landmark.
document.querySelector("main").append(Object.assign(document.createElement("div"), { id: "vg-tooltip-element" }));
document.querySelectorAll(".chart").forEach(async (chart) => {
  const picture = chart.querySelector("img"), place = document.createElement("div");
  const { $schema, ...drawn } = JSON.parse(chart.querySelector("script").textContent);
  const size = { width: "container", height: 240, autosize: { type: "fit-x", contains: "padding" } };
  picture.after(place);
  try {
    const { view } = await vegaEmbed(place, { ...drawn, ...size, description: picture.alt }, options);
    view.addEventListener("click", (_, item) => {
      if (item?.datum?.href) location.assign(chart.dataset.root + item.datum.href);
    });
    picture.remove();
    reach(place);
  } catch (error) {
    console.error(error);
    place.remove();
  }
});
