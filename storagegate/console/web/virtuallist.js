// A list of any length, of which only the rows that are seen are elements.
//
// An element may not be higher than some 8,000,000 px, beyond which browsers lose exactness. A longer list
// has a scroll bar that stands for it in proportion: small steps scroll by as many pixels, and far
// ones go to the part of the list that has the same share of it.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./ui.js";

export const MOST_PX = 7500000;

const OVERSCAN = 6;
const SETTLE_MS = 150;

class Scroll {
  constructor() {
    this.top = 0;
    this.shift = 0;
    this.seen = 0;
  }

  // Take the size of the list: {rows, height, view}, all but the first in pixels.
  resize(rows, height, view) {
    this.full = rows * height;
    this.height = Math.min(this.full, MOST_PX);
    this.most = Math.max(0, this.full - view);
    this.mostSeen = Math.max(0, this.height - view);
    this.view = view;
  }

  // Where the list is, of where the scroll bar is.
  follow(seen) {
    const isFar = Math.abs(seen - this.seen) > 2 * this.view;
    this.seen = seen;
    if (this.full <= MOST_PX) this.top = seen;
    else if (isFar) this.top = (seen * this.most) / this.mostSeen;
    else this.top = Math.min(Math.max(seen + this.shift, 0), this.most);
    this.shift = Math.round(this.top - seen);
    return this.full > MOST_PX && (seen < this.view || seen > this.mostSeen - this.view);
  }

  // Put the scroll bar to where the list is.
  settle(element) {
    const wanted = this.full <= MOST_PX ? this.top : (this.top * this.mostSeen) / this.most;
    if (Math.abs(element.scrollTop - wanted) > 1) element.scrollTop = wanted;
    this.seen = element.scrollTop;
    this.shift = this.full <= MOST_PX ? 0 : Math.round(this.top - this.seen);
  }
}

const PHONE = matchMedia("(max-width: 820px)");

// The height of a row; on a phone a row is a card.
export function useRowHeight(row, card) {
  const [isPhone, setIsPhone] = useState(PHONE.matches);
  useEffect(() => {
    const changed = () => setIsPhone(PHONE.matches);
    PHONE.addEventListener("change", changed);
    return () => PHONE.removeEventListener("change", changed);
  }, []);
  return isPhone ? card : row;
}

// `row(index, style)` draws a row of the same `height`; `onSpan(first, last)` says which are seen.
// `handle.current` gets `{reveal(index), page(), focus()}`, of which `page` is rows of a page of the keyboard.
// A `head` of `headHeight` stays above the rows, which scroll below it.
export function VirtualList({ count, row, height = 40, onSpan, handle, head, headHeight = 0, boxed, ...rest }) {
  const element = useRef();
  const scroll = useRef(null);
  if (!scroll.current) scroll.current = new Scroll();
  const [span, setSpan] = useState({ first: 0, last: 0, shift: 0 });
  const look = () => {
    const { top, view, shift } = scroll.current;
    const first = Math.max(0, Math.floor(top / height) - OVERSCAN);
    const last = Math.min(count, Math.ceil((top + view) / height) + OVERSCAN);
    setSpan((before) =>
      before.first === first && before.last === last && before.shift === shift
        ? before
        : { first, last, shift });
    onSpan(first, last);
  };
  const measure = () => {
    const at = scroll.current;
    if (!element.current) return;
    // It may have scrolled since its event was handled.
    if (at.view && element.current.scrollTop !== at.seen) at.follow(element.current.scrollTop);
    at.resize(count, height, element.current.clientHeight - headHeight);
    at.top = Math.min(at.top, at.most);
    at.settle(element.current);
    look();
  };
  const latest = useRef();
  latest.current = { measure, look };
  useLayoutEffect(measure, [count]);
  useEffect(() => {
    let frame = 0;
    let timer = 0;
    const list = element.current;
    const settle = () => {
      scroll.current.settle(list);
      latest.current.look();
    };
    const scrolled = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => {
        if (scroll.current.follow(list.scrollTop)) settle();
        else latest.current.look();
      });
      clearTimeout(timer);
      timer = setTimeout(settle, SETTLE_MS);
    };
    const sizes = new ResizeObserver(() => latest.current.measure());
    sizes.observe(list);
    list.addEventListener("scroll", scrolled, { passive: true });
    return () => {
      cancelAnimationFrame(frame);
      clearTimeout(timer);
      sizes.disconnect();
      list.removeEventListener("scroll", scrolled);
    };
  }, []);
  handle.current = {
    focus: () => element.current.focus({ preventScroll: true }),
    page: () => Math.max(1, Math.floor(scroll.current.view / height) - 1),
    reveal(index) {
      const at = scroll.current;
      const lowest = (index + 1) * height - at.view;
      at.top = Math.max(0, Math.min(Math.max(at.top, lowest), index * height, at.most));
      at.settle(element.current);
      look();
    },
  };
  const rows = [];
  for (let index = span.first; index < Math.min(span.last, count); index += 1)
    rows.push(row(index, index * height - span.shift));
  return html`
    <div ref=${element} class=${boxed ? "list boxed" : "list"} tabindex="0" ...${rest}
      style=${{ height: Math.min(count, 1000) * height + headHeight + 2 + "px" }}>
      ${head}
      <div role="presentation" style=${{ position: "relative", height: Math.min(count * height, MOST_PX) + "px" }}>${rows}</div>
    </div>
  `;
}
