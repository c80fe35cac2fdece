// Charts of series over time: lines in an SVG that takes the width it gets, with the axes as text around it.

import { useState } from "preact/hooks";
import { addTexts, date, say } from "./messages.js";
import { html } from "./ui.js";

addTexts({
  "chart.at": "At {time}",
});

const WIDTH = 1000;
const HEIGHT = 150;
const MOST_TICKS = 4;
const TIMES = 5;

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

const isKnown = (value) => value !== null && value !== undefined;

// The values of the axis: from 0 on, in steps of 1, 2 or 5 times a power of ten.
function ticksOf(most) {
  const raw = (most > 0 ? most * 1.05 : 1) / MOST_TICKS;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((each) => each * power >= raw) * power;
  return Array.from({ length: Math.ceil((most > 0 ? most * 1.05 : 1) / step) + 1 }, (_, at) => at * step);
}

// A line with a gap where a value is unknown.
function pathOf(numbers, x, y) {
  let path = "";
  let isDown = false;
  for (const [at, value] of numbers.entries()) {
    if (isKnown(value)) path += (isDown ? "L" : "M") + x(at).toFixed(1) + " " + y(value).toFixed(1);
    isDown = isKnown(value);
  }
  return path;
}

// `series` are [name, numbers]; `times` are seconds since the epoch. The legend has the last values, or the ones at the pointer.
export function Chart({ title, times, series, format }) {
  const [pointed, setPointed] = useState(null);
  const count = times.length;
  const known = series.flatMap(([, numbers]) => numbers.filter(isKnown));
  const ticks = ticksOf(known.reduce((most, each) => Math.max(most, each), 0));
  const top = ticks.at(-1);
  const x = (at) => (count > 1 ? (at / (count - 1)) * WIDTH : 0);
  const y = (value) => HEIGHT - (Math.max(0, value) / top) * HEIGHT;
  const at = pointed === null ? null : Math.min(pointed, count - 1);
  const valueOf = (numbers) => (at === null ? numbers.findLast(isKnown) : numbers[at]);
  const latest = series.map(([name, numbers]) => [name, valueOf(numbers)]);
  const spoken = latest.filter(([, value]) => isKnown(value)).map(([name, value]) => name + " " + format(value)).join(", ");
  const point = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    setPointed(Math.max(0, Math.round(((event.clientX - box.left) / box.width) * (count - 1))));
  };
  const shownTimes = Array.from({ length: count > 1 ? TIMES : 0 }, (_, each) => times[Math.round((each / (TIMES - 1)) * (count - 1))]);
  return html`
    <figure class="card chart">
      <figcaption>${title}${at !== null && html` <small>${say("chart.at", { time: date(times[at] * 1000) })}</small>`}</figcaption>
      <div class="plot" role="img" aria-label=${title + ": " + spoken}>
        <div class="plotValues">${[...ticks].reverse().map((each) => html`<span>${format(each)}</span>`)}</div>
        <svg viewBox=${"0 0 " + WIDTH + " " + HEIGHT} preserveAspectRatio="none" onPointerMove=${point} onPointerLeave=${() => setPointed(null)}>
          ${ticks.map((each) => html`<path class="grid" d=${"M0 " + y(each) + "H" + WIDTH} />`)}
          ${at !== null && html`<path class="grid" d=${"M" + x(at) + " 0V" + HEIGHT} />`}
          ${series.map(([, numbers], each) => html`<path class=${"line" + (each % 6)} d=${pathOf(numbers, x, y)} />`)}
        </svg>
        <div class="plotTimes">${shownTimes.map((each) => html`<span>${clock.format(each * 1000)}</span>`)}</div>
      </div>
      <ul class="legend">
        ${latest.map(([name, value], each) => html`
          <li><span class=${"swatch line" + (each % 6)} aria-hidden="true">■</span> ${name}${" "}<small>${isKnown(value) ? format(value) : ""}</small></li>
        `)}
      </ul>
    </figure>
  `;
}
