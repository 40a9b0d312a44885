// Shows how fresh the index is: commits of the table above the water, the index's work on them below.

import { at, make, say, when } from "./elements.js";
import { between, commitHour, commitName, count, duration, number } from "./words.js";

/** Pixels between two times below the commits. */
const HOUR_WIDTH = 56;
const STEPS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };

/**
 * How far the index is behind its table, in a few words.
 *
 * @param {import("./shapes.js").Status} status
 * @param {import("./shapes.js").CommitMark[]} marks
 * @returns {{state: "none" | "behind" | "late" | "step", words: string}}
 */
export function standing(status, marks) {
  if (!status.built) return { state: "none", words: "no index yet" };
  const slow = status.fresh === false ? "late" : "behind";
  if (status.lag_commits > 0) {
    return {
      state: slow,
      words: `${count(status.lag_commits, "commit")} behind, ${duration(status.lag_seconds)}`,
    };
  }
  if (!status.in_step) return { state: slow, words: `a ${status.would} is due: ${status.why}` };
  if (!status.instant) return { state: "step", words: "in step: the table has no commit yet" };
  const newest = marks.find((mark) => mark.instant === status.instant);
  const after = between(newest?.completed, newest?.synced);
  const words = `in step with commit ${commitName(status.instant, newest?.completed)}`;
  return { state: "step", words: after === null ? words : `${words}, ${duration(after)} after it` };
}

/**
 * The newest sync in one sentence; nothing if there was none.
 *
 * @param {import("./shapes.js").CommitMark[]} marks
 * @returns {(Node | string)[]}
 */
export function newestSync(marks) {
  const record = marks.findLast((mark) => mark.record)?.record;
  return record ? [when(record.time), `: ${summary(record)}`] : [];
}

/** @param {import("./shapes.js").SyncRecord} record */
function summary(record) {
  return [
    `${count(record.rows_changed, "row")} changed`,
    `${number(record.embedded)} embedded`,
    `${number(record.reused)} reused`,
    `${number(record.rows_deleted)} deleted`,
    `in ${duration(record.seconds.total ?? 0)}`,
  ].join(", ");
}

/** The strip of commits. */
export class Freshness {
  constructor() {
    this.strip = at("commits");
    this.frame = /** @type {HTMLElement} */ (this.strip.parentElement);
    /** @type {import("./shapes.js").CommitMark[]} */
    this.marks = [];
    /** @type {Map<string, HTMLElement>} */
    this.buttons = new Map();
    this.trouble = "";
    this.pinned = "";
    this.pointed = "";
    this.drawn = "";
    this.strip.addEventListener("keydown", (event) => this.key(event));
    this.strip.addEventListener("focusout", () => this.point(""));
    this.strip.addEventListener("mouseleave", () => this.point(""));
    new ResizeObserver(() => this.lay()).observe(this.strip);
  }

  /**
   * @param {import("./shapes.js").Status} status
   * @param {import("./shapes.js").CommitMark[]} marks  oldest first
   * @param {string} trouble  why the index does not follow, if known
   */
  show(status, marks, trouble) {
    this.marks = marks;
    this.trouble = trouble;
    at("trouble").textContent = trouble;
    at("trouble").hidden = trouble === "";
    const { state, words } = standing(status, marks);
    this.badge(state, words, status.freshness_limit);
    this.draw();
    this.detail();
  }

  /**
   * @param {string} state
   * @param {string} words
   * @param {number | null} [limit]
   */
  badge(state, words, limit = null) {
    const badge = at("badge");
    // Screen readers announce only a change of state, not every second.
    if (badge.dataset.state !== state && badge.dataset.state !== "looking") say(words);
    badge.dataset.state = state;
    badge.title = limit === null || limit === undefined ? "" : `freshness limit: ${duration(limit)}`;
    at("badge-words").textContent = words;
  }

  /**
   * Fold the strip into its badge, or unfold it.
   *
   * @param {boolean} folded
   */
  fold(folded) {
    if (at("strip").hidden === folded) return;
    at("strip").hidden = folded;
    at("fold").setAttribute("aria-expanded", String(!folded));
    at("freshness").dataset.folded = String(folded);
    if (!folded) this.frame.scrollLeft = this.strip.scrollWidth;
  }

  /** The server is gone: the badge shows the last known state. */
  lost() {
    const { state } = at("badge").dataset;
    if (state !== "gone" && state !== "looking")
      this.badge("gone", `last seen ${at("badge-words").textContent}`);
  }

  /** Forget everything, for another index. */
  reset() {
    this.marks = [];
    this.trouble = "";
    at("trouble").hidden = true;
    this.pinned = this.pointed = "";
    this.badge("looking", "looking at the table …");
    this.draw();
    this.detail();
  }

  draw() {
    const atEnd = this.frame.scrollLeft + this.frame.clientWidth >= this.strip.scrollWidth - 4;
    const first = this.buttons.size === 0;
    const known = new Set(this.marks.map((mark) => mark.instant));
    for (const [instant, button] of this.buttons) {
      if (!known.has(instant)) button.remove();
      if (!known.has(instant)) this.buttons.delete(instant);
    }
    this.marks.forEach((mark, i) => this.drawMark(mark, i, first));
    this.strip.dataset.empty = String(this.marks.length === 0);
    this.lay();
    if (atEnd || first) this.frame.scrollLeft = this.strip.scrollWidth;
  }

  /**
   * @param {import("./shapes.js").CommitMark} mark
   * @param {number} i
   * @param {boolean} first
   */
  drawMark(mark, i, first) {
    const button = this.buttons.get(mark.instant) ?? this.button(mark, first);
    // Moved only if necessary: a moved element loses the focus.
    const before = i === 0 ? null : this.buttons.get(this.marks[i - 1].instant);
    if (!button.isConnected || (before && before.nextElementSibling !== button)) {
      if (before) before.after(button);
      else this.strip.prepend(button);
    }
    const shared = (/** @type {number} */ j) => sameSync(mark, this.marks[j]);
    button.dataset.state = mark.absorbed ? "absorbed" : mark.completed ? "pending" : "flight";
    button.dataset.joined = [shared(i - 1) && "before", shared(i + 1) && "after"].filter(Boolean).join(" ");
    button.setAttribute("aria-label", spoken(mark));
    button.setAttribute("aria-pressed", String(mark.instant === this.pinned));
    // Several commits absorbed by one sync have one reflection, below the last of them.
    reflect(button, shared(i + 1) ? null : mark.record, mark.absorbed);
  }

  /**
   * @param {import("./shapes.js").CommitMark} mark
   * @param {boolean} first
   */
  button(mark, first) {
    const depth = make(
      "span",
      { class: "depth" },
      ...["embedded", "reused", "deleted"].map((kind) => make("i", { class: kind })),
    );
    const button = make(
      "button",
      {
        type: "button",
        class: "commit",
        "data-instant": mark.instant,
        "data-kind": mark.action,
        "data-arrived": !first,
        onclick: () => this.pin(mark.instant),
        onfocus: () => this.point(mark.instant),
        onmouseenter: () => this.point(mark.instant),
      },
      make("span", { class: "buoy" }),
      depth,
      make("span", { class: "hour" }, commitHour(mark)),
    );
    this.buttons.set(mark.instant, button);
    return button;
  }

  /** Put the boat and its wake where the index is, and show as many times as there is room for. */
  lay() {
    const buttons = this.marks.map((mark) => /** @type {HTMLElement} */ (this.buttons.get(mark.instant)));
    const pitch = buttons.at(-1)?.offsetWidth || HOUR_WIDTH;
    const every = Math.ceil(HOUR_WIDTH / pitch);
    buttons.forEach((button, i) => {
      button.dataset.hour = String((buttons.length - 1 - i) % every === 0);
      button.tabIndex = i === this.tabStop() ? 0 : -1;
    });
    const newest = buttons[this.marks.findLastIndex((mark) => mark.absorbed)];
    for (const button of buttons) button.dataset.boat = String(button === newest);
    const x = newest ? newest.offsetLeft + newest.offsetWidth / 2 : 0;
    this.strip.dataset.afloat = String(newest !== undefined);
    this.strip.style.setProperty("--boat", `${x}px`);
  }

  /** The commit that Tab stops at. */
  tabStop() {
    const wanted = this.marks.findIndex((mark) => mark.instant === (this.pointed || this.pinned));
    return wanted >= 0 ? wanted : this.marks.length - 1;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = STEPS[/** @type {keyof typeof STEPS} */ (event.key)];
    if (step === undefined) return;
    event.preventDefault();
    const here = this.marks.findIndex((mark) => this.buttons.get(mark.instant) === document.activeElement);
    const place = Math.max(0, Math.min(here + step, this.marks.length - 1));
    this.buttons.get(this.marks[place].instant)?.focus();
  }

  /** @param {string} instant */
  pin(instant) {
    this.pinned = this.pinned === instant ? "" : instant;
    for (const [each, button] of this.buttons)
      button.setAttribute("aria-pressed", String(each === this.pinned));
    this.detail();
  }

  /** @param {string} instant */
  point(instant) {
    this.pointed = instant;
    this.lay();
    this.detail();
  }

  /** Show the sync of the commit pointed at, else of the pinned one, else of the newest. */
  detail() {
    const wanted = this.pointed || this.pinned;
    const mark =
      this.marks.find((each) => each.instant === wanted) ??
      this.marks.findLast((each) => each.record) ??
      this.marks.at(-1);
    const key = JSON.stringify([mark, wanted]);
    if (key === this.drawn) return;
    this.drawn = key;
    at("sync").toggleAttribute("data-wanted", wanted !== "");
    at("sync").replaceChildren(
      ...(mark ? detail(mark) : []),
    );
  }
}

/**
 * @param {import("./shapes.js").CommitMark} mark
 * @param {import("./shapes.js").CommitMark | undefined} other
 */
function sameSync(mark, other) {
  return Boolean(mark.record && other?.record && mark.record.time === other.record.time);
}

/**
 * Draw what a sync did below the water.
 *
 * @param {HTMLElement} button
 * @param {import("./shapes.js").SyncRecord | null} record
 * @param {boolean} absorbed
 */
function reflect(button, record, absorbed) {
  const counts = record ? [record.embedded, record.reused, record.rows_deleted] : [0, 0, 0];
  const all = counts.reduce((sum, n) => sum + n, 0);
  // Logarithmic, so that one row is visible beside a build of thousands.
  const depth = all ? Math.min(6 + 13 * Math.log10(1 + all), 54) : absorbed ? 3 : 0;
  const bar = /** @type {HTMLElement} */ (button.querySelector(".depth"));
  bar.style.height = `${depth}px`;
  [...bar.querySelectorAll("i")].forEach((part, i) => (part.style.flexGrow = String(counts[i])));
}

/** @param {import("./shapes.js").CommitMark} mark */
function spoken(mark) {
  const name = `commit ${commitName(mark.instant, mark.completed)}`;
  if (!mark.absorbed) return `${name}, ${mark.completed ? "not in the index yet" : "in flight"}`;
  return `${name}, in the index${mark.record ? `: ${summary(mark.record)}` : ""}`;
}

/**
 * @param {import("./shapes.js").CommitMark} mark
 * @returns {HTMLElement[]}
 */
function detail(mark) {
  const after = between(mark.completed, mark.synced);
  const arrived = !mark.absorbed
    ? mark.completed
      ? "not in the index yet"
      : "in flight"
    : after === null
      ? "in the index"
      : `in the index ${duration(after)} after it`;
  const head = make(
    "p",
    { class: "which" },
    make("strong", {}, `Commit ${commitName(mark.instant, mark.completed)}`),
    mark.completed && when(mark.completed),
    make("code", {}, mark.instant),
    make("br"),
    make("span", { class: "when" }, arrived),
    make("span", { class: "small" }, mark.action),
  );
  return mark.record ? [head, figures(mark.record), reasons(mark.record)] : [head];
}

/** @param {import("./shapes.js").SyncRecord} record */
function figures(record) {
  const pairs = [
    ["changed", number(record.rows_changed)],
    ["embedded", number(record.embedded)],
    ["reused", number(record.reused)],
    ["deleted", number(record.rows_deleted)],
    ...(record.quarantined ? [["quarantined", number(record.quarantined)]] : []),
    ["total", duration(record.seconds.total ?? 0)],
  ];
  return make(
    "dl",
    { class: "figures" },
    ...pairs.map(([name, value]) =>
      make(
        "div",
        { "data-figure": name, "data-zero": value === "0" },
        make("dt", {}, name),
        make("dd", {}, value),
      ),
    ),
  );
}

/** @param {import("./shapes.js").SyncRecord} record */
function reasons(record) {
  const stages = Object.entries(record.seconds).filter(([stage]) => stage !== "total");
  const bar = make(
    "span",
    { class: "stages", "aria-hidden": "true" },
    ...stages.map(([, s]) => {
      const part = make("i");
      // In milliseconds: parts that add up to less than 1 would not fill the bar.
      part.style.flexGrow = String(1000 * s);
      return part;
    }),
  );
  const words = stages.map(([stage, s]) => `${stage} ${duration(s)}`).join(" · ");
  return make(
    "div",
    { class: "reasons" },
    make("p", {}, make("strong", {}, record.action), ` ${record.why}`),
    stages.length ? make("p", { class: "small" }, bar, words) : null,
  );
}
