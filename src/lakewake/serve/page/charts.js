// Bars for a history: one for each sync, oldest first. Numbers become heights; words become text nodes.

import { make } from "./elements.js";
import { moment } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
/** The size of a chart in its own units; it is stretched to the width of the page. */
const WIDTH = 600;
const HEIGHT = 120;
/** The lowest bar that is drawn for more than nothing. */
const LEAST = 3;

/**
 * One part of each bar.
 *
 * @typedef {{name: string, kind: string, of: (record: import("./shapes.js").SyncRecord) => number}} Part
 */

/**
 * A chart with its legend.
 *
 * @param {string} title
 * @param {Part[]} parts
 * @param {import("./shapes.js").SyncRecord[]} records  oldest first
 * @param {(n: number) => string} words
 * @param {number} unit  a value of this size is the least that matters
 */
export function chart(title, parts, records, words, unit = 1) {
  const totals = records.map((record) => parts.reduce((sum, part) => sum + valueOf(part, record), 0));
  const most = Math.max(0, ...totals);
  const svg = element("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": `${title}: ${records.length} syncs, at most ${words(most)}. The table of syncs has the figures.`,
  });
  const pitch = WIDTH / Math.max(records.length, 12);
  records.forEach((record, i) => svg.append(bar(record, parts, totals[i], most, { x: i * pitch, pitch }, words, unit)));
  const legend = parts.map((part) => make("span", { class: part.kind }, part.name));
  if (records.some((record) => record.error)) legend.push(make("span", { class: "fault" }, "failed"));
  return make(
    "figure",
    { class: "chart" },
    make("figcaption", {}, make("strong", {}, title), make("span", { class: "legend" }, ...legend)),
    make("p", { class: "small", "aria-hidden": "true" }, most ? `${words(most)} at most; heights are logarithmic` : "nothing yet"),
    svg,
  );
}

/**
 * @param {import("./shapes.js").SyncRecord} record
 * @param {Part[]} parts
 * @param {number} total
 * @param {number} most
 * @param {{x: number, pitch: number}} place
 * @param {(n: number) => string} words
 * @param {number} unit
 */
function bar(record, parts, total, most, { x, pitch }, words, unit) {
  const group = element("g", { class: record.error ? "bar wrong" : "bar" });
  const title = element("title", {});
  const figures = parts.map((part) => `${part.name} ${words(valueOf(part, record))}`).join(", ");
  title.textContent = `${moment(record.time)}: ${record.error ? "failed" : record.action}; ${figures}`;
  group.append(title, element("rect", { class: "reach", x, y: 0, width: pitch, height: HEIGHT }));
  // One row is visible beside a build of a million.
  const height = total > 0 ? LEAST + (HEIGHT - LEAST) * scaled(total, most, unit) : 0;
  let y = HEIGHT;
  for (const part of parts) {
    const share = total > 0 ? (height * valueOf(part, record)) / total : 0;
    y -= share;
    if (share > 0)
      group.append(element("rect", { class: part.kind, x: x + pitch * 0.15, y, width: pitch * 0.7, height: share }));
  }
  if (record.error)
    group.append(element("rect", { class: "fault", x: x + pitch * 0.15, y: HEIGHT - 6, width: pitch * 0.7, height: 6 }));
  return group;
}

/** @param {Part} part @param {import("./shapes.js").SyncRecord} record */
function valueOf(part, record) {
  const value = Number(part.of(record));
  return Number.isFinite(value) && value > 0 ? value : 0;
}

/** @param {number} value @param {number} most @param {number} unit */
function scaled(value, most, unit) {
  return Math.log1p(value / unit) / Math.log1p(most / unit);
}

/** @param {string} tag @param {Record<string, string | number>} attributes */
function element(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}
