// Makes elements. Text always becomes a text node, so no content of a table is ever markup.

import { ago, cut, moment } from "./words.js";

/** The most code points of a tooltip. */
const TOOLTIP = 2_000;

/** @param {string} id */
export function at(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element;
}

/**
 * An element. `onclick` and the like are listeners, `false` and `null` leave an attribute out.
 *
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Node | string | null | false)} children
 * @returns {HTMLElement}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), /** @type {any} */ (value));
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== false));
  return element;
}

/**
 * The beginning of a text, with the whole text as a tooltip.
 *
 * @param {string} text
 * @param {number} most  code points
 * @param {Record<string, unknown>} [attributes]
 */
export function short(text, most, attributes = {}) {
  const shown = cut(text, most);
  return make("span", { ...attributes, title: shown === text ? null : cut(text, TOOLTIP) }, shown);
}

/**
 * Announce something to screen readers.
 *
 * @param {string} words
 */
export function say(words) {
  at("said").textContent = words;
}

/**
 * How long ago something was. `keepTime` keeps it true; the tooltip has the time with its zone.
 *
 * @param {string} iso
 */
export function when(iso) {
  return make("time", { datetime: iso, title: moment(iso), "data-ago": true }, ago(iso));
}

/** Keep all times of `when` true. */
export function keepTime() {
  setInterval(() => {
    for (const time of document.querySelectorAll("time[data-ago]")) {
      const words = ago(/** @type {HTMLTimeElement} */ (time).dateTime);
      if (time.textContent !== words) time.textContent = words;
    }
  }, 1_000);
}
