// The menu of a row: one popover, which a script puts beside the button that opened it.

import { useLayoutEffect, useRef } from "preact/hooks";
import { html, Icon } from "./ui.js";

const GAP_PX = 4;

// `items` are {label, icon, act, key, isBad}, or null for a rule; `at` is the element that opened it.
export function Menu({ label, items, at, onClose }) {
  const element = useRef();
  useLayoutEffect(() => {
    const menu = element.current;
    menu.showPopover();
    const place = at.getBoundingClientRect();
    const below = place.bottom + GAP_PX + menu.offsetHeight <= innerHeight;
    menu.style.top = Math.max(GAP_PX, below ? place.bottom + GAP_PX : place.top - GAP_PX - menu.offsetHeight) + "px";
    menu.style.left = Math.max(GAP_PX, place.right - menu.offsetWidth) + "px";
    menu.querySelector("button").focus();
  }, []);
  function pressed(event) {
    const buttons = [...element.current.querySelectorAll("button")];
    const now = buttons.indexOf(document.activeElement);
    const to = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: -1 }[event.key];
    if (event.key === "Tab") onClose();
    if (to === undefined) return;
    event.preventDefault();
    buttons.at(to % buttons.length).focus();
  }
  return html`
    <div ref=${element} popover class="menu" role="menu" aria-label=${label} onKeyDown=${pressed}
      onToggle=${(event) => event.newState === "closed" && onClose()}>
      ${items.map((item) => item
        ? html`<button type="button" role="menuitem" tabindex="-1" class=${item.isBad ? "isBad" : ""} onClick=${() => {
            onClose();
            item.act();
          }}><${Icon} name=${item.icon} />${item.label}${item.key && html`<kbd>${item.key}</kbd>`}</button>`
        : html`<hr role="separator" />`)}
    </div>
  `;
}
