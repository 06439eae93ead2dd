// Draws the figures in the colours of the style sheet, and again when these change or a source is hidden.
(() => {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const plots = [...document.querySelectorAll(".plot")];
  const buttons = [...document.querySelectorAll(".legend button")];
  const hidden = new Set(buttons.filter((one) => one.ariaPressed === "false").map((one) => Number(one.dataset.line)));
  let range = null; // steps shown; null is all of them

  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  // Only what is a colour is looked up: a source may be called "@ink".
  const coloured = (value, key = "") => {
    if (Array.isArray(value)) return value.map((inner) => coloured(inner, key));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, coloured(inner, name)]));
    }
    return typeof value === "string" && key.endsWith("color") && value.startsWith("@") ? variable(value.slice(1)) : value;
  };

  const axis = (own) => ({
    gridcolor: variable("grid"), linecolor: variable("edge"), zeroline: false, ...own,
    title: own.title && { ...own.title, font: { size: 12, color: variable("muted") } },
    tickfont: { size: 12, color: variable("muted") },
  });

  const layoutOf = (layout) => {
    const own = coloured(layout);
    return {
      ...own,
      autosize: true, showlegend: false,
      margin: { l: 44, r: 10, t: own.annotations.length ? 20 : 8, b: 40 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: variable("ink") },
      hoverlabel: {
        bgcolor: variable("card"), bordercolor: variable("edge"), font: { size: 12, color: variable("ink") }, namelength: 28,
      },
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", // a finger scrolls the page
      xaxis: { ...axis(own.xaxis), range: [...(range ?? own.xaxis.range)] },
      yaxis: { ...axis(own.yaxis), fixedrange: true },
    };
  };

  const draw = (plot) => {
    const { data, layout } = figures[plot.dataset.figure];
    const traces = coloured(data).map((trace) => ({ ...trace, visible: !hidden.has(trace.meta?.line) }));
    return Plotly.react(plot, traces, layoutOf(layout), { displayModeBar: false, doubleClick: false, responsive: true });
  };
  const drawAll = () => plots.forEach(draw);

  const show = (chosen) => {
    if (String(chosen) !== String(range)) {
      range = chosen;
      drawAll();
    }
  };

  const toggle = (line) => {
    if (!hidden.delete(line)) hidden.add(line);
    for (const button of buttons) button.setAttribute("aria-pressed", String(!hidden.has(Number(button.dataset.line))));
    drawAll();
  };

  drawAll();
  for (const plot of plots) {
    plot.on("plotly_relayout", (change) => {
      if ("xaxis.range[0]" in change) show([change["xaxis.range[0]"], change["xaxis.range[1]"]]);
    });
    plot.on("plotly_doubleclick", () => show(null));
    new ResizeObserver(() => Plotly.Plots.resize(plot)).observe(plot);
  }
  for (const button of buttons) button.addEventListener("click", () => toggle(Number(button.dataset.line)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
})();
