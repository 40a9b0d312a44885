// The hits, and what is shown if there are none.

import { at, make, short } from "./elements.js";
import { passage } from "./passage.js";
import { commitName, count, cut, plain, rowKey, rowName, titleColumn } from "./words.js";

/** The shortest bar of a score, as a share of the longest. */
const SHORTEST = 0.12;

/** Milliseconds that a row changed by a commit stays marked. */
const MARKED = 8_000;
/** The most code points of a payload value that are shown; its tooltip has the rest. */
const VALUE = 160;

/**
 * What a commit did to a row of the list, and the row's payload before.
 *
 * @typedef {{kind: "new here" | "changed", was: Record<string, unknown>}} Mark
 */

/** The list of hits. */
export class Results {
  /**
   * @param {{
   *   like: (hit: import("./shapes.js").Hit) => void, more: () => void,
   *   when: (instant: string) => (Node | string)[]
   * }} actions
   */
  constructor(actions) {
    this.actions = actions;
    this.list = at("hits");
    /** @type {import("./shapes.js").Hit[]} */
    this.hits = [];
    /** @type {Map<string, Mark & {until: number}>} */
    this.marks = new Map();
    this.instant = "";
    /** @type {import("./shapes.js").SearchResult | null} */
    this.result = null;
    at("more").addEventListener("click", () => actions.more());
    this.list.addEventListener("keydown", (event) => this.key(event));
  }

  /**
   * Show an answer to a new question.
   *
   * @param {import("./shapes.js").SearchResult} result
   */
  show(result) {
    this.marks.clear();
    this.put(result, result.hits);
  }

  /**
   * Show the answer to the same question at a later instant, and mark the differences.
   *
   * @param {import("./shapes.js").SearchResult} result
   * @returns {string} the differences, in words
   */
  refresh(result) {
    const marks = differences(this.hits, result.hits);
    for (const [row, mark] of marks) this.marks.set(row, { ...mark, until: Date.now() + MARKED });
    if (JSON.stringify(this.hits) === JSON.stringify(result.hits)) this.describe(result);
    else this.put(result, result.hits);
    const kinds = [...marks.values()].map((mark) => mark.kind);
    const [arrived, changed] = ["new here", "changed"].map(
      (kind) => kinds.filter((each) => each === kind).length,
    );
    return `Results follow commit ${commitName(result.instant)}: ${arrived} new, ${changed} changed`;
  }

  /** @param {import("./shapes.js").SearchResult} result */
  add(result) {
    const first = this.hits.length;
    this.put(result, [...this.hits, ...result.hits]);
    this.focus(first);
  }

  /**
   * @param {import("./shapes.js").SearchResult} result
   * @param {import("./shapes.js").Hit[]} hits
   */
  put(result, hits) {
    const focused = this.focused();
    this.hits = hits;
    const scores = hits.map((hit) => hit.score);
    const ends = { best: Math.max(...scores), last: Math.min(...scores) };
    this.list.replaceChildren(...hits.map((hit, i) => this.item(hit, i + 1, ends)));
    at("state").replaceChildren(...(hits.length ? [] : [nothing()]));
    at("more").hidden = !result.more;
    this.describe(result);
    const again = hits.findIndex((hit) => rowKey(hit) === focused);
    if (again >= 0) this.focus(again);
  }

  /** @param {import("./shapes.js").SearchResult} result */
  describe(result) {
    this.instant = result.instant;
    this.result = result;
    const words = at("found-words");
    const scanned = result.fallback ? `; the table was scanned: ${result.fallback}` : "";
    words.replaceChildren(
      `${count(this.hits.length, "row")}${result.more ? " and more" : ""}, as of commit `,
      ...this.actions.when(result.instant),
      scanned,
    );
    words.title = result.instant;
  }

  /** Show the time of the commit as it is known by now. */
  dated() {
    if (this.result && this.instant) this.describe(this.result);
  }

  /**
   * Show something that is not a list of hits.
   *
   * @param {...HTMLElement} instead
   */
  clear(...instead) {
    this.hits = [];
    this.instant = "";
    this.list.replaceChildren();
    at("more").hidden = true;
    at("found-words").textContent = "";
    at("state").replaceChildren(...instead);
  }

  /** @param {boolean} busy */
  busy(busy) {
    this.list.setAttribute("aria-busy", String(busy));
  }

  /**
   * Move the focus to a hit, given by its position or its row.
   *
   * @param {number | import("./shapes.js").RowId} which
   */
  focus(which) {
    const place =
      typeof which === "number" ? which : this.hits.findIndex((hit) => rowKey(hit) === rowKey(which));
    const item = /** @type {HTMLElement | undefined} */ (this.list.children[place]);
    item?.focus();
    return item !== undefined;
  }

  /** The row that has the focus. */
  focused() {
    const item = [...this.list.children].find((child) => child.contains(document.activeElement));
    return item ? /** @type {HTMLElement} */ (item).dataset.row : undefined;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const place = [...this.list.children].findIndex((child) =>
      child.contains(/** @type {Node} */ (event.target)),
    );
    if (event.key === "ArrowDown") this.focus(Math.min(place + 1, this.hits.length - 1));
    else if (event.key === "ArrowUp" && place === 0) at("question").focus();
    else if (event.key === "ArrowUp") this.focus(place - 1);
    else if (event.key === "Enter" && event.target === this.list.children[place])
      this.actions.like(this.hits[place]);
    else return;
    event.preventDefault();
  }

  /**
   * @param {import("./shapes.js").Hit} hit
   * @param {number} rank
   * @param {{best: number, last: number}} ends
   */
  item(hit, rank, ends) {
    const { name, body } = passage(hit);
    const mark = this.marks.get(rowKey(hit));
    const item = make(
      "li",
      {
        class: "hit",
        tabindex: -1,
        "data-row": rowKey(hit),
        "data-mark": mark?.kind,
        "aria-label": `${rank}. ${cut(rowName(hit), VALUE)}`,
      },
      make("p", { class: "rank", "aria-hidden": "true" }, String(rank)),
      make("h3", {}, name, mark ? make("span", { class: "mark" }, mark.kind) : null),
      score(hit, ends),
      body,
      make(
        "div",
        { class: "foot" },
        payload(hit, mark?.was ?? {}),
        make(
          "button",
          { type: "button", class: "quiet", onclick: () => this.actions.like(hit) },
          "More like this",
        ),
      ),
    );
    if (mark) setTimeout(() => this.unmark(item), mark.until - Date.now());
    return item;
  }

  /** @param {HTMLElement} item */
  unmark(item) {
    this.marks.delete(item.dataset.row ?? "");
    delete item.dataset.mark;
    for (const trace of item.querySelectorAll(".mark, s")) trace.remove();
  }
}

/**
 * The text before the first question.
 *
 * @param {string} index
 * @param {import("./shapes.js").Status | null} status
 * @param {(Node | string)[]} newest  the newest sync, in words
 * @param {HTMLElement | null} example  a button that asks an example question
 */
export function welcome(index, status, newest, example) {
  if (status && !status.built) return missing(index);
  const rows = status ? `${count(status.rows, "row")} of ${index}` : "the rows of your table";
  return make(
    "div",
    { class: "welcome" },
    make("p", { class: "lead" }, "Ask in your own words."),
    make(
      "p",
      {},
      `Results appear as you type, from ${rows}. Change a row in the table and watch it arrive here.`,
    ),
    example && make("p", {}, example),
    newest.length > 0 && make("p", { class: "newest" }, make("strong", {}, "Newest sync "), ...newest),
    make(
      "p",
      { class: "keys" },
      ...hints([
        ["/", "search"],
        ["↓ ↑", "through the results"],
        ["↵", "recommend"],
        ["Esc", "start over"],
      ]),
    ),
  );
}

/** @param {string} index */
function missing(index) {
  return make(
    "div",
    { class: "welcome" },
    make("p", { class: "lead" }, `There is no index ${index} yet.`),
    make("p", {}, make("code", {}, `lakewake sync ${index}`), " builds it. This page updates by itself."),
  );
}

/**
 * What went wrong and what to do, as the server reports it.
 *
 * @param {string} fact
 * @param {string} hint
 */
export function failure(fact, hint) {
  return make(
    "div",
    { class: "failure", role: "alert" },
    make("p", { class: "lead" }, fact),
    hint ? make("p", {}, hint) : null,
  );
}

function nothing() {
  return make(
    "div",
    { class: "welcome" },
    make("p", { class: "lead" }, "No rows found."),
    make("p", {}, "Try other words, another mode, or fewer filters."),
  );
}

/** @param {[string, string][]} pairs */
function hints(pairs) {
  return pairs.map(([key, words]) => make("span", {}, make("kbd", {}, key), ` ${words}`));
}

/**
 * @param {import("./shapes.js").Hit[]} before
 * @param {import("./shapes.js").Hit[]} after
 * @returns {Map<string, Mark>}
 */
function differences(before, after) {
  const content = (/** @type {import("./shapes.js").Hit} */ hit) => JSON.stringify([hit.text, hit.payload]);
  const known = new Map(before.map((hit) => [rowKey(hit), hit]));
  /** @type {Map<string, Mark>} */
  const marks = new Map();
  for (const hit of after) {
    const was = known.get(rowKey(hit));
    if (!was) marks.set(rowKey(hit), { kind: "new here", was: {} });
    else if (content(was) !== content(hit)) marks.set(rowKey(hit), { kind: "changed", was: was.payload });
  }
  return marks;
}

/**
 * The score, with a bar between those of the last and the best row of the list: scores of one list
 * are often close together, and what they mean depends on the mode.
 *
 * @param {import("./shapes.js").Hit} hit
 * @param {{best: number, last: number}} ends
 */
function score(hit, { best, last }) {
  const bar = make("span", { class: "gauge", "aria-hidden": "true" }, make("i"));
  const share = best > last ? (hit.score - last) / (best - last) : 1;
  bar.style.setProperty("--part", `${100 * (SHORTEST + (1 - SHORTEST) * share)}%`);
  const near = hit.similarity === null ? "by words" : `similarity ${hit.similarity.toFixed(3)}`;
  return make(
    "p",
    { class: "score", title: near },
    make("span", { class: "unseen" }, "score "),
    hit.score.toFixed(3),
    bar,
  );
}

/**
 * @param {import("./shapes.js").Hit} hit
 * @param {Record<string, unknown>} was  what a changed row held before
 */
function payload(hit, was) {
  const title = titleColumn(hit);
  const shown = Object.entries(hit.payload).filter(
    ([column, value]) => column !== title && value !== null && value !== "",
  );
  const pairs = shown.map(([column, value]) =>
    pair(column, plain(value), column in was ? plain(was[column]) : null),
  );
  const id = hit.partition ? `${hit.partition} / ${hit.key}` : hit.key;
  return make("dl", { class: "payload" }, ...pairs, title ? pair("key", id, null) : null);
}

/**
 * @param {string} column
 * @param {string} value
 * @param {string | null} was
 */
function pair(column, value, was) {
  const before = was === null || was === value ? null : make("s", {}, cut(was, VALUE));
  return make("div", {}, make("dt", {}, column), make("dd", {}, before, short(value, VALUE)));
}
