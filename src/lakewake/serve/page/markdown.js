// A model's message, as elements. It knows a little Markdown: paragraphs, headings, lists, quotes,
// code, emphasis. Everything else, HTML and addresses included, stays the text that it is. Nothing
// here makes an attribute, a link or an image of what a message says.

import { make } from "./elements.js";

/** How deep emphasis may nest; deeper marks stay text. */
const DEEPEST = 6;
/** The most characters that are looked at for markup; the rest stays text. */
const MOST = 20_000;

/**
 * @callback Cite
 * @param {string} name  the number or key in square brackets
 * @returns {HTMLElement | null}  a link to the row; null: no such row was used
 */

/**
 * The blocks of a message.
 *
 * @param {string} text
 * @param {Cite} [cite]
 * @returns {HTMLElement[]}
 */
export function markdown(text, cite = () => null) {
  const lines = text.slice(0, MOST).replaceAll("\r\n", "\n").split("\n");
  /** @type {HTMLElement[]} */
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const taken = block(lines, at, cite);
    if (taken.element) blocks.push(taken.element);
    at = taken.next;
  }
  if (text.length > MOST) blocks.push(make("p", {}, text.slice(MOST)));
  return blocks;
}

const FENCE = /^ {0,3}(```+|~~~+)/;
const HEADING = /^ {0,3}#{1,6} +(\S.*)$/;
const RULE = /^ {0,3}([-*_])( *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?/;
const BULLET = /^ {0,9}[-*+] +(\S.*)$/;
const NUMBERED = /^ {0,9}(\d{1,6})[.)] +(\S.*)$/;

/**
 * The block that begins at a line, and the line after it.
 *
 * @param {string[]} lines
 * @param {number} at
 * @param {Cite} cite
 * @returns {{element: HTMLElement | null, next: number}}
 */
function block(lines, at, cite) {
  const line = lines[at];
  if (!line.trim()) return { element: null, next: at + 1 };
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, at, fence[1]);
  const heading = HEADING.exec(line);
  if (heading)
    return { element: make("p", { class: "heading" }, ...inline(heading[1], cite)), next: at + 1 };
  if (RULE.test(line)) return { element: make("hr"), next: at + 1 };
  if (QUOTE.test(line)) {
    const end = run(lines, at, (one) => QUOTE.test(one));
    const inside = lines.slice(at, end).map((one) => one.replace(QUOTE, ""));
    return { element: make("blockquote", {}, ...inline(inside.join("\n"), cite)), next: end };
  }
  for (const [tag, form, group] of /** @type {const} */ ([
    ["ul", BULLET, 1],
    ["ol", NUMBERED, 2],
  ])) {
    if (!form.test(line)) continue;
    const end = run(lines, at, (one) => form.test(one));
    const items = lines.slice(at, end).map((one) => /** @type {RegExpExecArray} */ (form.exec(one)));
    const list = make(tag, {}, ...items.map((item) => make("li", {}, ...inline(item[group], cite))));
    if (tag === "ol") list.setAttribute("start", String(Number(items[0][1])));
    return { element: list, next: end };
  }
  const end = run(lines, at, (one, i) => i === at || isPlain(one));
  return { element: make("p", {}, ...inline(lines.slice(at, end).join("\n"), cite)), next: end };
}

/** @param {string} line */
function isPlain(line) {
  return line.trim() !== "" && ![FENCE, HEADING, RULE, QUOTE, BULLET, NUMBERED].some((form) => form.test(line));
}

/**
 * The line after the last one in a row that fits.
 *
 * @param {string[]} lines
 * @param {number} at
 * @param {(line: string, i: number) => boolean} fits
 */
function run(lines, at, fits) {
  let end = at;
  while (end < lines.length && fits(lines[end], end)) end += 1;
  return end;
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @param {string} fence
 */
function fenced(lines, at, fence) {
  const end = run(lines, at + 1, (line) => !line.trim().startsWith(fence));
  const code = make("code", {}, lines.slice(at + 1, end).join("\n"));
  return { element: make("pre", { tabindex: 0 }, code), next: end + 1 };
}

/**
 * @param {string} text
 * @param {Cite} cite
 * @param {number} [depth]
 * @returns {(Node | string)[]}
 */
function inline(text, cite, depth = 0) {
  /** @type {(Node | string)[]} */
  const out = [];
  /** Marks that have no partner in the rest of the text: looking again would take time. */
  const alone = new Set();
  let plain = "";
  let at = 0;
  while (at < text.length) {
    const found = marked(text, at, alone, cite, depth);
    if (found) {
      if (plain) out.push(plain);
      plain = "";
      out.push(...found.nodes);
      at = found.next;
    } else {
      // A backslash before a mark makes it text.
      if (text[at] === "\\" && /[\\`*_[\]#>~!-]/.test(text[at + 1] ?? "")) at += 1;
      plain += text[at];
      at += 1;
    }
  }
  if (plain) out.push(plain);
  return out;
}

/**
 * What begins with a mark at a place; null if it is text.
 *
 * @param {string} text
 * @param {number} at
 * @param {Set<string>} alone
 * @param {Cite} cite
 * @param {number} depth
 * @returns {{nodes: (Node | string)[], next: number} | null}
 */
function marked(text, at, alone, cite, depth) {
  const first = text[at];
  if (first === "[") return cited(text, at, cite);
  if (first === "`") {
    const ticks = /** @type {RegExpExecArray} */ (/^`+/.exec(text.slice(at, at + 20)))[0];
    const end = partner(text, at, ticks, alone);
    if (end < 0) return null;
    return { nodes: [make("code", {}, text.slice(at + ticks.length, end).trim())], next: end + ticks.length };
  }
  if ((first !== "*" && first !== "_") || depth >= DEEPEST) return null;
  const mark = text[at + 1] === first ? first + first : first;
  // In a name like `row_id` the underscore is a letter.
  if (first === "_" && /\w/.test(text[at - 1] ?? "")) return null;
  if (/\s/.test(text[at + mark.length] ?? " ")) return null;
  const end = partner(text, at, mark, alone);
  if (end < 0 || /\s/.test(text[end - 1])) return null;
  const inside = inline(text.slice(at + mark.length, end), cite, depth + 1);
  return { nodes: [make(mark.length === 2 ? "strong" : "em", {}, ...inside)], next: end + mark.length };
}

/**
 * Where a mark occurs again; -1 if it does not.
 *
 * @param {string} text
 * @param {number} at
 * @param {string} mark
 * @param {Set<string>} alone
 */
function partner(text, at, mark, alone) {
  if (alone.has(mark)) return -1;
  let end = text.indexOf(mark, at + mark.length + 1);
  // The end of `*…*` is not half of `**`.
  while (mark.length === 1 && end >= 0 && text[end + 1] === mark) end = text.indexOf(mark, end + 2);
  if (end < 0) alone.add(mark);
  return end;
}

const BRACKETS = /^\[([^[\]\n]{1,100})\]/;
const NUMBER = /^(?:rows?\s*|#)?(\d{1,6})$/i;

/**
 * The citations in square brackets: `[1]`, `[2, 3]`, `[row 4]`, `[wine_17]`.
 *
 * @param {string} text
 * @param {number} at
 * @param {Cite} cite
 */
function cited(text, at, cite) {
  const brackets = BRACKETS.exec(text.slice(at, at + 103));
  if (!brackets) return null;
  const names = brackets[1].split(/[,;]/).map((name) => name.trim());
  const links = names.map((name) => cite(NUMBER.exec(name)?.[1] ?? name));
  if (links.every((link) => link === null)) return null;
  const nodes = links.map((link, i) => link ?? `[${names[i]}]`);
  return { nodes, next: at + brackets[0].length };
}
