// Filters for the payload columns, and the `where` that they make together.

import { make, short } from "./elements.js";
import { number } from "./words.js";

/** How many values are shown at first. */
const FEW = 6;
/** The most code points of a value that are shown; its tooltip has the rest. */
const LABEL = 80;

/**
 * What the user chose for one column: values, or the ends of a range as typed.
 *
 * @typedef {{chosen: Set<string | boolean | null>, low: string, high: string}} Choice
 */

/** The filters of one index, and what the user chose in them. */
export class Filters {
  /**
   * @param {HTMLElement} root
   * @param {() => void} changed
   */
  constructor(root, changed) {
    this.root = root;
    this.changed = changed;
    /** @type {import("./shapes.js").Facet[]} */
    this.facets = [];
    /** @type {Map<string, Choice>} */
    this.choices = new Map();
    /** @type {Set<string>} */
    this.unfolded = new Set();
  }

  /** How many columns have a filter. */
  get active() {
    return this.facets.filter((facet) => this.condition(facet)).length;
  }

  /** @returns {import("./shapes.js").Where | null} */
  where() {
    const all = this.facets.map((facet) => this.condition(facet)).filter((one) => one !== null);
    return all.length > 1 ? { and: all } : (all[0] ?? null);
  }

  clear() {
    this.choices.clear();
    this.draw();
    this.changed();
  }

  /** Forget everything, for another index. */
  reset() {
    this.facets = [];
    this.choices.clear();
    this.unfolded.clear();
    this.draw();
  }

  /** @param {import("./shapes.js").Facet[]} facets */
  show(facets) {
    if (JSON.stringify(facets) === JSON.stringify(this.facets)) return;
    this.facets = facets;
    this.draw();
  }

  /** @param {import("./shapes.js").Facet} facet */
  condition(facet) {
    const { chosen, low, high } = this.choice(facet.column);
    if (facet.values) return oneOf(facet.column, [...chosen]);
    const least = limit(facet, low);
    const most = limit(facet, high);
    if (least === null && most === null) return null;
    return {
      [facet.column]: { ...(least !== null && { ">=": least }), ...(most !== null && { "<=": most }) },
    };
  }

  /** @param {string} column */
  choice(column) {
    const choice = this.choices.get(column) ?? { chosen: new Set(), low: "", high: "" };
    this.choices.set(column, choice);
    return choice;
  }

  draw() {
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.id;
    const groups = this.facets.map((facet, i) => this.group(facet, `filter-${i}`)).filter((g) => g !== null);
    const clear = make(
      "button",
      { type: "button", class: "quiet", id: "clear", onclick: () => this.clear() },
      "Clear filters",
    );
    this.root.replaceChildren(
      ...groups,
      ...(groups.length
        ? [clear]
        : [make("p", { class: "small" }, "Nothing to filter by: no payload column is suitable.")]),
    );
    this.count();
    if (focused && this.root.querySelector(`#${CSS.escape(focused)}`))
      document.getElementById(focused)?.focus();
  }

  /** Show how many filters are set. */
  count() {
    const clear = this.root.querySelector("#clear");
    if (clear) /** @type {HTMLElement} */ (clear).hidden = this.active === 0;
    const title = document.getElementById("filters-title");
    if (title) title.dataset.active = this.active ? String(this.active) : "";
  }

  touched() {
    this.count();
    this.changed();
  }

  /**
   * @param {import("./shapes.js").Facet} facet
   * @param {string} id
   */
  group(facet, id) {
    const inside = facet.values ? this.values(facet, id) : this.range(facet, id);
    return (
      inside &&
      make(
        "fieldset",
        { class: "facet", "data-column": facet.column },
        make("legend", {}, facet.column),
        ...inside,
      )
    );
  }

  /**
   * Check boxes for the values of a column.
   *
   * @param {import("./shapes.js").Facet} facet
   * @param {string} id
   */
  values(facet, id) {
    const { chosen } = this.choice(facet.column);
    const known = (facet.values ?? []).map(({ value }) => value);
    // A chosen value that a commit removed stays in the list, so that it can be unchecked.
    const gone = [...chosen].filter((value) => !known.includes(value)).map((value) => ({ value, count: 0 }));
    const all = [...gone, ...(facet.values ?? [])];
    if (!all.length) return null;
    const few = this.unfolded.has(facet.column) || all.length <= FEW + 1 ? all : all.slice(0, FEW);
    const more = facet.more ?? 0;
    const folded = few.length < all.length;
    const label = more ? `${all.length} of ${number(all.length + more)}` : `all ${all.length}`;
    return [
      ...few.map((value, i) => this.tick(facet.column, value, `${id}-${i}`)),
      folded && this.unfold(facet.column, label),
      !folded && more > 0 && make("p", { class: "small" }, `and ${number(more)} more, less frequent`),
    ];
  }

  /**
   * @param {string} column
   * @param {{value: string | boolean | null, count: number}} entry
   * @param {string} id
   */
  tick(column, { value, count }, id) {
    const { chosen } = this.choice(column);
    const box = /** @type {HTMLInputElement} */ (
      make("input", {
        type: "checkbox",
        id,
        onchange: () => {
          if (box.checked) chosen.add(value);
          else chosen.delete(value);
          this.touched();
        },
      })
    );
    box.checked = chosen.has(value);
    const words = short(value === null ? "(none)" : String(value), LABEL, { class: "value" });
    return make(
      "label",
      { for: id, class: "tick" },
      box,
      words,
      make("span", { class: "count" }, number(count)),
    );
  }

  /**
   * @param {string} column
   * @param {string} words
   */
  unfold(column, words) {
    return make(
      "button",
      {
        type: "button",
        class: "quiet",
        onclick: () => {
          this.unfolded.add(column);
          this.draw();
        },
      },
      words,
    );
  }

  /**
   * Two fields for a range, and a slider for numbers.
   *
   * @param {import("./shapes.js").Facet} facet
   * @param {string} id
   */
  range(facet, id) {
    if (facet.min === null || facet.min === undefined || facet.min === facet.max) return null;
    if (facet.type !== "number" && facet.type !== "time") return null;
    const ends = make(
      "div",
      { class: "ends" },
      this.end(facet, "low", `${id}-low`),
      make("span", {}, "to"),
      this.end(facet, "high", `${id}-high`),
    );
    return facet.type === "number" ? [this.slider(facet, id), ends] : [ends];
  }

  /**
   * The field for one end of a range.
   *
   * @param {import("./shapes.js").Facet} facet
   * @param {"low" | "high"} side
   * @param {string} id
   */
  end(facet, side, id) {
    const bound = side === "low" ? facet.min : facet.max;
    const choice = this.choice(facet.column);
    const words = `${facet.column}, ${side === "low" ? "at least" : "at most"}`;
    const box = /** @type {HTMLInputElement} */ (
      make("input", {
        id,
        type: facet.type === "number" ? "number" : isDay(facet) ? "date" : "datetime-local",
        step: facet.type === "number" ? "any" : null,
        placeholder: facet.type === "number" ? number(Number(bound)) : null,
        "aria-label": words,
        oninput: () => {
          choice[side] = box.value;
          this.root.querySelector(`#${id}-slide`)?.dispatchEvent(new Event("typed"));
          this.touched();
        },
      })
    );
    box.value = choice[side];
    return box;
  }

  /**
   * Two thumbs on one track. The fields below it do the same without dragging.
   *
   * @param {import("./shapes.js").Facet} facet
   * @param {string} id
   */
  slider(facet, id) {
    const track = make("div", { class: "slider", "aria-hidden": "true" });
    const min = Number(facet.min);
    const max = Number(facet.max);
    const thumbs = /** @type {const} */ (["low", "high"]).map((side) =>
      this.thumb(facet, side, `${id}-${side}`),
    );
    const draw = () => {
      const [from, to] = thumbs.map((thumb) => (Number(thumb.value) - min) / (max - min));
      track.style.setProperty("--from", `${100 * Math.min(from, to)}%`);
      track.style.setProperty("--to", `${100 * Math.max(from, to)}%`);
    };
    for (const thumb of thumbs) for (const kind of ["input", "typed"]) thumb.addEventListener(kind, draw);
    track.append(...thumbs);
    draw();
    return track;
  }

  /**
   * @param {import("./shapes.js").Facet} facet
   * @param {"low" | "high"} side
   * @param {string} id
   */
  thumb(facet, side, id) {
    const [min, max] = [Number(facet.min), Number(facet.max)];
    const step = stepOf(min, max);
    // The last position of the thumb: the steps from the lower end may not reach the upper end.
    const bound = side === "low" ? min : min + Math.floor((max - min) / step + 1e-9) * step;
    const choice = this.choice(facet.column);
    const thumb = /** @type {HTMLInputElement} */ (
      make("input", { type: "range", id: `${id}-slide`, min, max, step, tabindex: -1 })
    );
    const follow = () => (thumb.value = choice[side] === "" ? String(bound) : choice[side]);
    thumb.addEventListener("typed", follow);
    thumb.addEventListener("input", () => {
      // At the end of the track there is no condition, so rows without a value are included.
      choice[side] = Math.abs(Number(thumb.value) - bound) < step / 2 ? "" : thumb.value;
      /** @type {HTMLInputElement} */ (document.getElementById(id)).value = choice[side];
      this.touched();
    });
    follow();
    return thumb;
  }
}

/**
 * @param {string} column
 * @param {(string | boolean | null)[]} values
 */
function oneOf(column, values) {
  const given = values.filter((value) => value !== null);
  const some = given.length > 1 ? { [column]: { in: given } } : given.length ? { [column]: given[0] } : null;
  if (given.length === values.length) return some;
  const none = { [column]: { is_null: true } };
  return some ? { or: [some, none] } : none;
}

/**
 * What was typed, as a literal of a filter. Times are UTC, as on the server.
 *
 * @param {import("./shapes.js").Facet} facet
 * @param {string} typed
 */
function limit(facet, typed) {
  if (typed === "") return null;
  if (facet.type === "number") return Number(typed);
  return isDay(facet) ? { date: typed } : { timestamp: typed };
}

/** @param {import("./shapes.js").Facet} facet */
function isDay(facet) {
  return String(facet.min).length === 10;
}

/**
 * A step for about a hundred round positions; a whole number if the ends are far apart.
 *
 * @param {number} min
 * @param {number} max
 */
function stepOf(min, max) {
  const round = 10 ** Math.floor(Math.log10((max - min) / 50));
  return Number.isInteger(min) && Number.isInteger(max) && max - min >= 5 ? Math.max(1, round) : round;
}
