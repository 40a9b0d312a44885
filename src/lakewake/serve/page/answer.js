// The recommendation: an answer from the rows found, shown while it is written.

import * as api from "./api.js";
import { at, make, say, short } from "./elements.js";
import { markdown } from "./markdown.js";
import { TITLE } from "./passage.js";
import { cut, rowKey, rowName } from "./words.js";

/** The most code points of a row's text that the panel shows, if the row is not among the results. */
const EXCERPT = 400;
/** The most code points of an answer in the button that leads to it. */
const PREVIEW = 90;

const WRITTEN_BY = {
  model: "Written by the model, from the rows below only",
  extract: "Quoted from the rows below; no model wrote this",
  none: "No answer",
};

/** The panel beside the results. */
export class Answer {
  /**
   * @param {{
   *   jump: (row: import("./shapes.js").RowId) => boolean, again: () => void,
   *   failed: (error: unknown) => void, has_model: () => boolean,
   *   when: (instant: string) => (Node | string)[]
   * }} actions
   */
  constructor(actions) {
    this.actions = actions;
    this.root = at("answer");
    this.preview = at("to-answer");
    this.preview.addEventListener("click", () => this.visit());
    this.instant = "";
    this.control = new AbortController();
    this.clear();
  }

  clear() {
    this.control.abort();
    this.instant = "";
    this.root.dataset.state = "idle";
    this.preview.hidden = true;
    this.root.replaceChildren(
      make(
        "p",
        { class: "small" },
        "Press Enter for an answer in words. It uses only what the best rows say.",
      ),
    );
  }

  /**
   * Ask, and show the answer while it is being written.
   *
   * @param {string} index
   * @param {{query: string} & Record<string, unknown>} question
   */
  async ask(index, question) {
    this.control.abort();
    const control = (this.control = new AbortController());
    const message = this.begin(question.query);
    let written = "";
    let due = false;
    const write = (/** @type {string} */ text) => {
      written += text;
      if (due) return;
      due = true;
      // Once for each frame that is drawn, however fast the parts arrive.
      requestAnimationFrame(() => {
        due = false;
        if (message.isConnected) message.replaceChildren(...markdown(written));
      });
    };
    try {
      const answer = await api.recommend(index, question, control.signal, write);
      if (!control.signal.aborted) this.show(answer);
    } catch (error) {
      if (!control.signal.aborted) this.fail(error);
    }
  }

  /** @param {string} query */
  begin(query) {
    const message = make("div", { class: "message" });
    this.instant = "";
    this.root.dataset.state = "writing";
    this.lead("reading the rows …");
    this.root.replaceChildren(
      asked(query),
      message,
      make("p", { class: "small waiting" }, "reading the rows …"),
    );
    return message;
  }

  /** @param {import("./shapes.js").Recommendation} answer */
  show(answer) {
    this.instant = answer.instant;
    this.root.dataset.state = answer.answered_by;
    const by = WRITTEN_BY[answer.answered_by] ?? answer.answered_by;
    const cite = (/** @type {string} */ name) => this.citation(answer, name);
    const message = markdown(answer.message, cite);
    // That no model is configured is for operators, who see it on their page.
    const reason = this.actions.has_model() ? answer.reason : null;
    this.root.replaceChildren(
      asked(answer.query),
      ...(answer.message ? [make("div", { class: "message" }, ...message)] : []),
      make("p", { class: "by" }, by),
      ...(reason ? [make("p", { class: "reason" }, reason)] : []),
      ...this.rows(answer),
      make("p", { class: "small", title: answer.instant }, "as of commit ", ...this.actions.when(answer.instant)),
    );
    const words = message.map((block) => block.textContent).join(" ") || by;
    this.lead(words);
    say(`Recommendation: ${words}`);
  }

  /**
   * On a narrow screen the answer is below the results: a button above them shows how it begins.
   *
   * @param {string} words
   */
  lead(words) {
    this.preview.hidden = false;
    this.preview.replaceChildren(make("strong", {}, "Recommendation"), make("span", {}, cut(words, PREVIEW)));
  }

  /** Go to the answer. */
  visit() {
    const title = at("answer-title");
    title.scrollIntoView({ block: "start" });
    title.focus({ preventScroll: true });
  }

  /**
   * A link from a citation to its row: [1] is the first hit that the answer was made from.
   *
   * @param {import("./shapes.js").Recommendation} answer
   * @param {string} name
   */
  citation(answer, name) {
    const used = new Set(answer.used.map(rowKey));
    const isNumber = /^\d+$/.test(name);
    const hit = isNumber
      ? answer.hits[Number(name) - 1]
      : answer.hits.find((one) => one.key === name && used.has(rowKey(one)));
    if (!hit || !used.has(rowKey(hit))) return null;
    const words = isNumber ? name : cut(name, 20);
    return make(
      "a",
      {
        class: "cite",
        href: location.hash || "#",
        title: cut(rowName(hit), TITLE),
        "aria-label": `row ${words}: ${cut(rowName(hit), TITLE)}`,
        onclick: (/** @type {Event} */ event) => {
          event.preventDefault();
          this.jump(hit);
        },
      },
      words,
    );
  }

  /**
   * Go to a row: among the results, or else here.
   *
   * @param {import("./shapes.js").Hit | import("./shapes.js").RowId} row
   */
  jump(row) {
    if (this.actions.jump(row)) return;
    const items = [.../** @type {NodeListOf<HTMLElement>} */ (this.root.querySelectorAll(".used li"))];
    const item = items.find((one) => one.dataset.row === rowKey(row));
    if (!item) return;
    const text = "text" in row ? row.text : null;
    if (text && !item.querySelector("p")) item.append(make("p", { class: "small" }, cut(text, EXCERPT)));
    item.querySelector("button")?.focus();
  }

  /** @param {import("./shapes.js").Recommendation} answer */
  rows(answer) {
    const hits = new Map(answer.hits.map((hit) => [rowKey(hit), hit]));
    const numbers = new Map(answer.hits.map((hit, i) => [rowKey(hit), i + 1]));
    const items = answer.used.map((row) => {
      const hit = hits.get(rowKey(row));
      return make(
        "li",
        // The number that the answer cites it by.
        { "data-row": rowKey(row), "data-number": numbers.get(rowKey(row)) ?? "" },
        make(
          "button",
          { type: "button", class: "quiet", onclick: () => this.jump(hit ?? row) },
          short(hit ? rowName(hit) : row.key, TITLE),
        ),
      );
    });
    return items.length
      ? [
          make("h3", {}, items.length === 1 ? "Row used" : "Rows used"),
          make("ol", { class: "used" }, ...items),
        ]
      : [];
  }

  /** @param {unknown} error */
  fail(error) {
    const hint = error instanceof api.ServerError ? error.hint : "";
    this.actions.failed(error);
    this.root.dataset.state = "failed";
    this.root.querySelector(".waiting")?.remove();
    this.lead(/** @type {Error} */ (error).message);
    this.root.append(
      make(
        "p",
        { class: "reason", role: "alert" },
        [/** @type {Error} */ (error).message, hint].filter(Boolean).join(". "),
      ),
      this.askAgain(),
    );
  }

  /**
   * Mark an answer that is older than the index. It is not repeated by itself, since a model may cost money.
   *
   * @param {string} instant
   */
  moved(instant) {
    if (!this.instant || this.instant === instant || this.root.querySelector(".moved")) return;
    this.root.append(make("p", { class: "moved" }, "The table has changed since then. ", this.askAgain()));
  }

  askAgain() {
    return make("button", { type: "button", class: "quiet", onclick: () => this.actions.again() }, "Ask again");
  }
}

/** @param {string} query */
function asked(query) {
  return make("p", { class: "asked" }, query);
}
