// Charts of series over time, drawn by uPlot, which only the pages that draw load.

import { useEffect, useLayoutEffect, useRef } from "./hooks.ceebd18b27.js";
import uPlot from "./uplot.073f022c86.js";
import { html } from "./ui.7967bae88c.js";

const STYLE = "./assets/uplot.df630c6a8d.css";
const HEIGHT = 180;

function loadStyle() {
  if (document.getElementById("uplotStyle")) return;
  const link = document.createElement("link");
  link.id = "uplotStyle";
  link.rel = "stylesheet";
  link.href = STYLE;
  document.head.append(link);
}

// Colours are pairs for light and dark; a canvas needs the one that holds.
const colour = (element) => getComputedStyle(element).color;

function options(element, names, format) {
  const axis = { stroke: colour(element), grid: { width: 0.3, stroke: colour(element) }, ticks: { show: false } };
  const swatches = element.parentElement.querySelectorAll(".swatch");
  const rows = names.map((label, at) => ({
    label, stroke: colour(swatches[at]), width: 1.5, spanGaps: false, points: { show: false },
  }));
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    scales: { y: { range: (_, low, high) => [Math.min(0, low || 0), high > 0 ? high * 1.1 : 1] } },
    axes: [axis, { ...axis, size: 70, values: (_, ticks) => ticks.map(format) }],
    series: [{}, ...rows],
  };
}

// `series` are [name, numbers]; `times` are seconds since the epoch.
export function Chart({ title, times, series, format }) {
  const element = useRef();
  const plot = useRef(null);
  const names = series.map(([name]) => name);
  const data = [times, ...series.map(([, numbers]) => numbers)];
  useEffect(loadStyle, []);
  useLayoutEffect(() => {
    const draw = () => {
      if (plot.current) plot.current.destroy();
      plot.current = new uPlot(options(element.current, names, format), data, element.current);
    };
    draw();
    const resized = new ResizeObserver(() => {
      const width = element.current.clientWidth;
      if (plot.current.width !== width) plot.current.setSize({ width, height: HEIGHT });
    });
    resized.observe(element.current);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    return () => {
      resized.disconnect();
      dark.removeEventListener("change", draw);
      plot.current.destroy();
      plot.current = null;
    };
  }, [names.join()]);
  useLayoutEffect(() => {
    if (plot.current) plot.current.setData(data);
  }, [times]);
  const lastOf = (numbers) => numbers.findLast((each) => each !== null);
  const latest = series.map(([name, numbers]) => [name, lastOf(numbers)]);
  const known = latest.filter(([, value]) => value !== undefined && value !== null);
  const spoken = known.map(([name, value]) => name + " " + format(value)).join(", ");
  return html`
    <figure class="card chart">
      <figcaption>${title}</figcaption>
      <div ref=${element} class="plot" role="img" aria-label=${title + ": " + spoken}></div>
      <ul class="legend">
        ${latest.map(([name, value], at) => html`
          <li><span class=${"swatch line" + (at % 6)} aria-hidden="true">■</span> ${name}
            <small>${value === undefined || value === null ? "" : format(value)}</small></li>
        `)}
      </ul>
    </figure>
  `;
}
