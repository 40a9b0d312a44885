// Numbers, times and commits as people read them.

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const dated = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
});
const whole = new Intl.NumberFormat("en");
const decimal = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });

/** @param {number} n */
export function number(n) {
  return (Number.isInteger(n) ? whole : decimal).format(n);
}

/**
 * "1 row", "2,004 rows".
 *
 * @param {number} n
 * @param {string} one
 */
export function count(n, one) {
  return `${number(n)} ${one}${n === 1 ? "" : "s"}`;
}

/**
 * A duration, as precise as useful: "0.8 s", "14 s", "3 min", "5 h", "2 days".
 *
 * @param {number} s
 */
export function duration(s) {
  if (s < 0.005) return "0 s";
  if (s < 0.0995) return `${s.toFixed(2)} s`;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 99.5) return `${Math.round(s)} s`;
  if (s < 99 * 60) return `${Math.round(s / 60)} min`;
  if (s < 47.5 * 3600) return `${Math.round(s / 3600)} h`;
  return count(Math.round(s / 86400), "day");
}

/**
 * A moment in the reader's zone: "15 Nov, 17:04:12 UTC"; '' if it is not a time.
 *
 * @param {string} iso
 */
export function moment(iso) {
  const time = Date.parse(iso);
  // Non-breaking spaces keep a time on one line.
  return Number.isNaN(time) ? "" : dated.format(time).replace(/,? /g, "\u00a0");
}

/**
 * How long ago a moment was: "12 s ago", "2 min ago". Clocks may differ, so the future is now.
 *
 * @param {string} iso
 */
export function ago(iso) {
  const seconds = (Date.now() - Date.parse(iso)) / 1000;
  if (Number.isNaN(seconds)) return "";
  if (seconds < 2) return "just now";
  return seconds < 99.5 ? `${Math.round(seconds)} s ago` : `${duration(seconds)} ago`;
}

/**
 * The time of a commit: when it completed, if that is known: "15 Nov 17:04:12 UTC". Its instant
 * alone is a time in the table's own zone, which is not known here: "15 Nov 17:04:12".
 *
 * @param {string} instant
 * @param {string | null} [completed]
 */
export function commitName(instant, completed) {
  const known = completed ? moment(completed) : "";
  if (known) return known;
  const parts = /^\d{4}(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)/.exec(instant);
  if (!parts || !MONTHS[Number(parts[1]) - 1]) return instant;
  const [, month, day, hours, minutes, seconds] = parts;
  return `${Number(day)}\u00a0${MONTHS[Number(month) - 1]}\u00a0${hours}:${minutes}:${seconds}`;
}

/**
 * The hour and minute of a commit, for the strip: "17:04", in the same zone as `commitName`.
 *
 * @param {import("./shapes.js").CommitMark} mark
 */
export function commitHour({ instant, completed }) {
  if (!completed) return /^\d{12}/.test(instant) ? `${instant.slice(8, 10)}:${instant.slice(10, 12)}` : "";
  return new Date(completed).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

/**
 * Seconds from one time to another, at least 0; null if one of them is unknown.
 *
 * @param {string | null | undefined} from
 * @param {string | null | undefined} to
 */
export function between(from, to) {
  if (!from || !to) return null;
  const ms = Date.parse(to) - Date.parse(from);
  return Number.isNaN(ms) ? null : Math.max(0, ms / 1000);
}

/**
 * A payload value as text.
 *
 * @param {unknown} value
 */
export function plain(value) {
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : decimal.format(value);
  if (typeof value === "string") return value;
  return JSON.stringify(value) ?? "";
}

/**
 * The beginning of a text, with "…" if it was cut.
 *
 * @param {string} text
 * @param {number} most  code points
 */
export function cut(text, most) {
  if (text.length <= most) return text;
  // No code point is longer than two units.
  const points = Array.from(text.slice(0, 2 * most));
  return points.length <= most && text.length <= 2 * most ? text : `${points.slice(0, most - 1).join("")}…`;
}

/**
 * The name of a row: its title or name if it has one, else its key.
 *
 * @param {import("./shapes.js").Hit} hit
 */
export function rowName(hit) {
  const column = titleColumn(hit);
  return column ? String(hit.payload[column]) : hit.key;
}

/**
 * The payload column that names a row.
 *
 * @param {import("./shapes.js").Hit} hit
 */
export function titleColumn(hit) {
  return Object.keys(hit.payload).find(
    (column) => /^(title|name|product_?name|headline|subject|label)$/i.test(column) && hit.payload[column],
  );
}

/**
 * A text that identifies a row.
 *
 * @param {import("./shapes.js").RowId} row
 */
export function rowKey(row) {
  return JSON.stringify([row.partition, row.key]);
}
