// Filters for the payload columns, and the `where` that they make together.

import { make, short } from "./elements.js";
import { cut, number } from "./words.js";

/** How many values are shown at first. */
const FEW = 6;
/** The most code points of a value that are shown; its tooltip has the rest. */
const LABEL = 80;
/** The same on a chip, and in an example question. */
const CHIP = 40;
/** What the fields for days and times return. */
const DAY = /^\d{4}-\d\d-\d\d$/;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,3})?)?$/;
/** The most characters of filters that are read from an address. */
const ADDRESS = 4_000;

/**
 * What the user chose for one column: values, or the ends of a range as typed.
 *
 * @typedef {{chosen: Set<string | boolean | null>, low: string, high: string}} Choice
 */

/** The filters of one index, and what the user chose in them. */
export class Filters {
  /**
   * @param {HTMLElement} root
   * @param {HTMLElement} chips  the list of the filters in use
   * @param {() => void} changed
   */
  constructor(root, chips, changed) {
    this.root = root;
    this.chips = chips;
    this.changed = changed;
    /** What is counted for the question and the other filters; null: all rows. @type {Map<string, import("./shapes.js").Facet> | null} */
    this.counted = null;
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

  /** What was chosen, for the address; '' if nothing was. */
  get kept() {
    const kept = this.facets
      .filter((facet) => this.condition(facet))
      .map((facet) => {
        const { chosen, low, high } = this.choice(facet.column);
        const values = [...chosen].filter((value) => fits(facet, value));
        return [facet.column, facet.values ? values : { low, high }];
      });
    return kept.length ? JSON.stringify(Object.fromEntries(kept)) : "";
  }

  /**
   * Choose what an address says. Anybody may have written it: what is not a choice is left out, and
   * columns that have no filter here are.
   *
   * @param {string | null} kept
   */
  restore(kept) {
    this.choices.clear();
    for (const [column, value] of Object.entries(parsed(kept))) {
      const values = Array.isArray(value) ? value.filter(isValue) : [];
      const end = (/** @type {unknown} */ typed) => (typeof typed === "string" ? typed : "");
      this.choices.set(column, { chosen: new Set(values), low: end(value?.low), high: end(value?.high) });
    }
    this.draw();
  }

  /**
   * Show these counts: those of the rows that the question and the other filters leave.
   *
   * @param {import("./shapes.js").Facet[] | null} facets  null: those of all rows
   */
  count(facets) {
    const counted = facets && new Map(facets.map((facet) => [facet.column, facet]));
    if (JSON.stringify(facets) === JSON.stringify(this.counted && [...this.counted.values()])) return;
    this.counted = counted;
    this.draw();
  }

  /** Forget everything, for another index. */
  reset() {
    this.facets = [];
    this.counted = null;
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
    if (facet.values) {
      const fitting = [...chosen].filter((value) => fits(facet, value));
      return (facet.of_list ? anyOf : oneOf)(facet.column, fitting);
    }
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
    const groups = this.facets
      .map((facet, i) => (isChoosable(facet) ? this.group(facet, `filter-${i}`) : null))
      .filter((g) => g !== null);
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
    this.mark();
    if (focused && this.root.querySelector(`#${CSS.escape(focused)}`))
      document.getElementById(focused)?.focus();
  }

  /** Show which filters are set. */
  mark() {
    const clear = this.root.querySelector("#clear");
    if (clear) /** @type {HTMLElement} */ (clear).hidden = this.active === 0;
    const title = document.getElementById("filters-title");
    if (title) title.dataset.active = this.active ? String(this.active) : "";
    const chips = this.facets.flatMap((facet) => this.chipsOf(facet));
    this.chips.hidden = chips.length === 0;
    if (chips.length > 1) {
      const all = { type: "button", class: "quiet", onclick: () => this.clear() };
      chips.push(make("li", {}, make("button", all, "Clear all filters")));
    }
    this.chips.replaceChildren(...chips);
  }

  /**
   * A chip for each filter of a column. A click removes the filter.
   *
   * @param {import("./shapes.js").Facet} facet
   */
  chipsOf(facet) {
    if (!this.condition(facet)) return [];
    const choice = this.choice(facet.column);
    if (!facet.values) {
      const words = between(choice.low, choice.high);
      const remove = () => {
        choice.low = choice.high = "";
      };
      return [this.chip(facet.column, words, remove)];
    }
    return [...choice.chosen].filter((value) => fits(facet, value)).map((value) =>
      this.chip(facet.column, value === null ? "(none)" : String(value), () => choice.chosen.delete(value)),
    );
  }

  /**
   * @param {string} column
   * @param {string} words
   * @param {() => void} remove
   */
  chip(column, words, remove) {
    const shown = cut(words, CHIP);
    const button = make(
      "button",
      {
        type: "button",
        class: "chip",
        title: shown === words ? null : cut(words, 2_000),
        "aria-label": `Remove the filter ${column}: ${cut(words, LABEL)}`,
        onclick: () => {
          remove();
          this.draw();
          this.changed();
        },
      },
      make("span", {}, column),
      shown,
      make("span", { class: "cross", "aria-hidden": "true" }),
    );
    return make("li", {}, button);
  }

  touched() {
    this.mark();
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
    if (!facet.values?.length && !chosen.size) return null;
    const now = this.counted?.get(facet.column);
    const { values, more = 0 } = now?.values ? now : facet;
    const known = (values ?? []).map(({ value }) => value);
    // A chosen value that no row has stays in the list, so that it can be unchecked.
    const gone = [...chosen]
      .filter((value) => fits(facet, value) && !known.includes(value))
      .map((value) => ({ value, count: 0 }));
    const all = [...gone, ...(values ?? [])];
    if (!all.length) return [make("p", { class: "small" }, "no row of these has a value")];
    const few = this.unfolded.has(facet.column) || all.length <= FEW + 1 ? all : all.slice(0, FEW);
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
 * An example of a question: frequent values of up to two columns; '' if there are none.
 *
 * @param {import("./shapes.js").Facet[]} facets
 */
export function example(facets) {
  const words = facets
    .filter((facet) => facet.type === "text" && isChoosable(facet))
    .sort((a, b) => many(b) - many(a))
    .map((facet) => facet.values?.find(({ value }) => isWord(value))?.value)
    .filter((value) => value !== undefined);
  return words.slice(0, 2).join(", ");
}

/** @param {unknown} value */
function isWord(value) {
  return typeof value === "string" && value.length <= CHIP && /^\p{L}[\p{L}\p{M}\p{N} '’.-]*$/u.test(value);
}

/** How many values a column has. @param {import("./shapes.js").Facet} facet */
function many(facet) {
  return (facet.values?.length ?? 0) + (facet.more ?? 0);
}

/**
 * Whether there is a choice: in a column of names nearly every row has its own value.
 *
 * @param {import("./shapes.js").Facet} facet
 */
function isChoosable(facet) {
  return !facet.values || !facet.more || facet.values.some(({ count }) => count > 2);
}

/** @param {string | null} kept @returns {Record<string, any>} */
function parsed(kept) {
  if (!kept || kept.length > ADDRESS) return {};
  try {
    const value = JSON.parse(kept);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
  } catch {
    return {};
  }
}

/** @param {unknown} value */
function isValue(value) {
  return value === null || typeof value === "string" || typeof value === "boolean";
}

/**
 * Whether a column of this type can have a value; one from an address may be of another.
 *
 * @param {import("./shapes.js").Facet} facet
 * @param {string | boolean | null} value
 */
function fits(facet, value) {
  return value === null || (typeof value === "boolean") === (facet.type === "boolean");
}

/** A range in words. @param {string} low @param {string} high */
function between(low, high) {
  if (low && high) return `${low} to ${high}`;
  return low ? `at least ${low}` : `at most ${high}`;
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
 * The same for a list: it has one of these elements.
 *
 * @param {string} column
 * @param {(string | boolean | null)[]} values
 */
function anyOf(column, values) {
  const given = values.filter((value) => value !== null);
  const some = given.length ? { [column]: { contains_any: given } } : null;
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
  if (facet.type === "number") return Number.isFinite(Number(typed)) ? Number(typed) : null;
  if (!(isDay(facet) ? DAY : TIME).test(typed) || Number.isNaN(Date.parse(typed))) return null;
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
