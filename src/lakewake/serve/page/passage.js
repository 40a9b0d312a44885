// A hit's text: the part around its best sentence, that sentence highlighted.

import { make } from "./elements.js";
import { number, rowName } from "./words.js";

/** Code points of a text shown before "whole text", and how many of them before the best sentence. */
const SHOWN = 520;
const BEFORE = 140;

/**
 * A hit's name and text, the best sentence highlighted in whichever of them it stands.
 *
 * @param {import("./shapes.js").Hit} hit
 * @returns {{name: HTMLElement, body: HTMLElement}}
 */
export function passage(hit) {
  const text = hit.text ?? "";
  const points = Array.from(text);
  const [from, to] = hit.highlight ?? [0, 0];
  const named = rowName(hit);
  const lead = leadLength(text, named);
  // A text that begins with the row's name shows it once, as the heading.
  const inName = to > from && to <= lead;
  const name = make("span", { class: "name" }, inName ? make("mark", {}, named) : named);
  const body = excerpt(
    points,
    lead,
    inName ? lead : Math.max(from, lead),
    inName ? lead : Math.max(to, lead),
  );
  return { name, body };
}

/**
 * Code points at a text's beginning that only repeat its name.
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
 * The part of a text around its best sentence; all of it on demand.
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
  draw(wordStart(points, first, start), Math.max(to, first + SHOWN));
  const whole = make(
    "button",
    {
      type: "button",
      class: "quiet",
      onclick: () => {
        draw(start, points.length);
        whole.remove();
      },
    },
    `whole text, ${number(points.length)} characters`,
  );
  return make("div", {}, text, whole);
}

/**
 * The beginning of the word at a place, not before `start`.
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
