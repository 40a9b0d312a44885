// The text of a hit: the part around its best sentence, with that sentence highlighted.

import { make, short } from "./elements.js";
import { number, rowName } from "./words.js";

/** Code points of a text that are shown at first, and how many of them before the best sentence. */
const SHOWN = 520;
const BEFORE = 140;
/** The most code points of a row's name. */
export const TITLE = 120;

/**
 * The name and text of a hit, with the best sentence highlighted in either of them.
 *
 * @param {import("./shapes.js").Hit} hit
 * @returns {{name: HTMLElement, body: HTMLElement}}
 */
export function passage(hit) {
  const text = hit.text ?? "";
  const points = Array.from(text);
  const [from, end] = hit.highlight ?? [0, 0];
  // A very long sentence must not fill the page.
  const to = Math.min(end, from + SHOWN - BEFORE);
  const named = rowName(hit);
  const lead = leadLength(text, named);
  // If the text begins with the row's name, the name is shown only once, as the heading.
  const inName = to > from && to <= lead;
  const words = short(named, TITLE);
  const name = make("span", { class: "name" }, inName ? make("mark", {}, words) : words);
  const body = excerpt(
    points,
    lead,
    inName ? lead : Math.max(from, lead),
    inName ? lead : Math.max(to, lead),
  );
  return { name, body };
}

/**
 * How many code points at the start of a text only repeat the name.
 *
 * @param {string} text
 * @param {string} name
 */
function leadLength(text, name) {
  if (!text.startsWith(name) || text.length === name.length) return 0;
  const after = /^(\s*[.:;,–—|-]\s+|\s*\n\s*)/.exec(text.slice(name.length));
  const lead = after ? name + after[0] : "";
  return lead.length === text.length ? 0 : Array.from(lead).length;
}

/**
 * The part of a text around its best sentence, with a button for all of it.
 *
 * @param {string[]} points
 * @param {number} start
 * @param {number} from
 * @param {number} to
 */
function excerpt(points, start, from, to) {
  const text = make("p", { class: "text" });
  const draw = (/** @type {number} */ first, /** @type {number} */ last) => {
    const cut = (/** @type {number} */ a, /** @type {number} */ b) =>
      points.slice(Math.max(a, first), Math.min(b, last)).join("");
    const best = to > from ? make("mark", {}, cut(from, to)) : "";
    text.replaceChildren(
      first > start ? "… " : "",
      cut(start, from),
      best,
      cut(to, points.length),
      last < points.length ? " …" : "",
    );
  };
  if (points.length - start <= SHOWN * 1.2) {
    draw(start, points.length);
    return text;
  }
  const first = Math.max(start, Math.min(from - BEFORE, points.length - SHOWN));
  const part = () => draw(wordStart(points, first, start), Math.max(to, first + SHOWN));
  part();
  const toggle = make("button", { type: "button", class: "quiet", "aria-expanded": "false" });
  const unfold = (/** @type {boolean} */ whole) => {
    if (whole) draw(start, points.length);
    else part();
    // A long text scrolls within its row, also with the keyboard.
    text.classList.toggle("whole", whole);
    if (whole) text.setAttribute("tabindex", "0");
    else text.removeAttribute("tabindex");
    toggle.setAttribute("aria-expanded", String(whole));
    toggle.textContent = whole ? "show less" : `show more, ${number(points.length)} characters`;
  };
  toggle.addEventListener("click", () => unfold(toggle.ariaExpanded === "false"));
  unfold(false);
  return make("div", {}, text, toggle);
}

/**
 * Where the word at `place` begins, but not before `start`.
 *
 * @param {string[]} points
 * @param {number} place
 * @param {number} start
 */
function wordStart(points, place, start) {
  let at = place;
  while (at > start && at > place - 20 && !/\s/.test(points[at - 1])) at -= 1;
  return at;
}
