// The recommendation: an answer from the rows found, shown while it is written.

import * as api from "./api.js";
import { at, make, say, short } from "./elements.js";
import { TITLE } from "./passage.js";
import { commitName, rowKey, rowName } from "./words.js";

const WRITTEN_BY = {
  model: "Written by the model, from the rows below only",
  extract: "Quoted from the rows below; no model wrote this",
  none: "No answer",
};

/** The panel beside the results. */
export class Answer {
  /** @param {{jump: (row: import("./shapes.js").RowId) => boolean, again: () => void, failed: (error: unknown) => void}} actions */
  constructor(actions) {
    this.actions = actions;
    this.root = at("answer");
    this.instant = "";
    this.control = new AbortController();
    this.clear();
  }

  clear() {
    this.control.abort();
    this.instant = "";
    this.root.dataset.state = "idle";
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
    try {
      const answer = await api.recommend(index, question, control.signal, (text) => message.append(text));
      if (!control.signal.aborted) this.show(answer);
    } catch (error) {
      if (!control.signal.aborted) this.fail(error);
    }
  }

  /** @param {string} query */
  begin(query) {
    const message = make("p", { class: "message" });
    this.instant = "";
    this.root.dataset.state = "writing";
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
    this.root.replaceChildren(
      asked(answer.query),
      ...(answer.message ? [make("p", { class: "message" }, answer.message)] : []),
      make("p", { class: "by" }, by),
      ...(answer.reason ? [make("p", { class: "reason" }, answer.reason)] : []),
      ...this.rows(answer),
      make("p", { class: "small", title: answer.instant }, `as of commit ${commitName(answer.instant)}`),
    );
    say(`Recommendation: ${answer.message || by}`);
  }

  /** @param {import("./shapes.js").Recommendation} answer */
  rows(answer) {
    const hits = new Map(answer.hits.map((hit) => [rowKey(hit), hit]));
    const items = answer.used.map((row) => {
      const hit = hits.get(rowKey(row));
      return make(
        "li",
        {},
        make(
          "button",
          { type: "button", class: "quiet", onclick: () => this.actions.jump(row) },
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
