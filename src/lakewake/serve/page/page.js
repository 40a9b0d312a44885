// The page: one question, its results, its recommendation, and the freshness of the index.

import * as api from "./api.js";
import { Answer } from "./answer.js";
import { at, keepTime, make, say, when } from "./elements.js";
import { Filters, example } from "./filters.js";
import { Freshness, newestSync } from "./freshness.js";
import { Results, failure, welcome } from "./results.js";
import { commitName, cut, rowName } from "./words.js";
import { Watch } from "./watch.js";

const PAGE = 10;
/** The most rows that a refresh asks for: servers limit k. */
const MOST = 50;
/** Milliseconds after the last key before a search is sent. */
const PAUSE = 150;
/** How often a search is repeated if its instant differs from the status of the index. */
const TRIES = 5;

const box = /** @type {HTMLInputElement} */ (at("question"));
const chooser = /** @type {HTMLSelectElement} */ (at("index"));
const keyForm = /** @type {HTMLFormElement} */ (at("key"));

/** The question, and what is known about its index. */
const now = {
  /** @type {import("./shapes.js").IndexSummary[]} */
  indexes: [],
  index: "",
  /** @type {import("./shapes.js").Hit | null} */
  like: null,
  /** @type {import("./shapes.js").Status | null} */
  status: null,
  /** @type {import("./shapes.js").CommitMark[]} */
  commits: [],
  /** The instant of the answer or refusal that is shown; null: there is none. @type {string | null} */
  answered: null,
  tries: 0,
  /** The question whose answer is shown, as JSON. */
  shown: "",
  /** What the text in the place of results was made of, as JSON. */
  greeted: "",
  /** The user's own choice whether the strip is folded; null: it is while there is a question. @type {boolean | null} */
  folded: null,
};

let search = new AbortController();
let counting = new AbortController();
let typing = 0;

const freshness = new Freshness();
const filters = new Filters(at("filters"), at("chips"), () => {
  remember();
  later();
});
const results = new Results({ like: moreLike, more: () => start("more"), when: commitTime });
const answer = new Answer({
  has_model: () => now.indexes.find(({ name }) => name === now.index)?.has_language_model ?? true,
  when: commitTime,
  jump: (row) => results.focus(row),
  again: recommend,
  failed: (error) => refused(error) || watch.now(),
});
const watch = new Watch(look, { back, gone, refused: (error) => refused(error) || unavailable(error) });

/** Everything that needs no question: the indexes, the status of this one, its commits. */
async function look() {
  if (!now.index) await loadIndexes();
  const index = now.index;
  const status = await api.status(index);
  const changed = fingerprint(status) !== fingerprint(now.status);
  if (changed || !settled(now.commits)) {
    const [commits, facets] = await Promise.all([
      api.commits(index),
      changed && status.built ? api.facets(index) : null,
    ]);
    if (index !== now.index) return;
    now.commits = commits;
    results.dated();
    if (facets) {
      const before = JSON.stringify(filters.where());
      filters.show(facets);
      // Filters of the address apply once their columns are known.
      if (JSON.stringify(filters.where()) !== before) now.answered = null;
    }
  }
  const trouble = status.in_step ? "" : await troubleOf(status);
  if (index !== now.index) return;
  now.status = status;
  freshness.show(status, now.commits, trouble);
  if (changed && !asking()) void countFacets();
  await follow(status);
  remember();
}

/**
 * The time of a commit, and how long ago that was, as far as they are known.
 *
 * @param {string} instant
 * @returns {(Node | string)[]}
 */
function commitTime(instant) {
  const completed = now.commits.find((mark) => mark.instant === instant)?.completed;
  const name = commitName(instant, completed);
  return completed ? [`${name} (`, when(completed), ")"] : [name];
}

/** Why an index that lags does not catch up, if known. @param {import("./shapes.js").Status} status */
async function troubleOf(status) {
  if (status.watch && !status.watch.running)
    return ["The process that follows the table has stopped.", ...status.watch.last_words].join(" ");
  const failure = await api.lastFailure(status.index);
  return failure && `The last sync failed: ${failure}`;
}

/** The part of a status that decides whether to reload the rest. @param {import("./shapes.js").Status | null} status */
function fingerprint(status) {
  return (
    status &&
    JSON.stringify([status.built, status.instant, status.newest_instant, status.lag_commits, status.rows])
  );
}

/**
 * Whether these commits are complete. The record of a sync is written just after its commit.
 *
 * @param {import("./shapes.js").CommitMark[]} commits
 */
function settled(commits) {
  return (
    commits.every((mark) => mark.completed) &&
    (commits.findLast((mark) => mark.absorbed)?.record ?? null) !== null
  );
}

/** Update what is shown to the instant of the index. @param {import("./shapes.js").Status} status */
async function follow(status) {
  at("facts").textContent = status.built ? `${status.rows.toLocaleString("en")} rows` : "";
  at("facts").title = status.table;
  answer.moved(status.instant);
  if (!asking()) return greet();
  if (now.answered === status.instant) return;
  if (now.answered === null || now.tries++ < TRIES) await find("new");
}

/** Load the list of indexes. */
async function loadIndexes() {
  now.indexes = await api.indexes();
  chooser.replaceChildren(...now.indexes.map(({ name }) => make("option", { value: name }, name)));
  chooser.disabled = now.indexes.length < 2;
  restore();
}

/** Ask what the address asks. */
function restore() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const name = now.indexes.find((index) => index.name === asked.get("index"))?.name ?? now.indexes[0].name;
  box.value ||= asked.get("q") ?? "";
  const input = document.querySelector(`input[name=mode][value="${CSS.escape(asked.get("mode") ?? "hybrid")}"]`);
  if (input) /** @type {HTMLInputElement} */ (input).checked = true;
  choose(name, asked.get("filters"));
}

/** @param {string} name @param {string | null} [kept]  filters of an address */
function choose(name, kept = null) {
  Object.assign(now, {
    index: name,
    like: null,
    status: null,
    commits: [],
    answered: null,
    tries: 0,
    shown: "",
  });
  chooser.value = name;
  document.title = `${name} · Lakewake`;
  const modes = now.indexes.find((index) => index.name === name)?.modes ?? [];
  for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (
    document.querySelectorAll("input[name=mode]")
  )) {
    input.disabled = modes.length > 0 && !modes.includes(input.value);
    if (input.disabled && input.checked)
      /** @type {HTMLInputElement} */ (
        document.querySelector(`input[value="${CSS.escape(modes[0])}"]`)
      ).checked = true;
  }
  filters.reset();
  filters.restore(kept);
  at("operators").setAttribute("href", `operators#${new URLSearchParams({ index: name })}`);
  freshness.reset();
  answer.clear();
  results.clear();
  showLike();
  if (!kept) remember();
}

/** Keep the question in the address, after the #: it can be shared, and no server logs it. */
function remember() {
  // Before the facets are there, the filters of an address are not known to be ours.
  if (!now.status) return;
  const chosen = filters.kept;
  const kept = new URLSearchParams({
    index: now.index,
    mode: mode(),
    ...(box.value && { q: box.value }),
    ...(chosen && { filters: chosen }),
  });
  history.replaceState(null, "", `#${kept}`);
}

function mode() {
  return /** @type {HTMLInputElement} */ (document.querySelector("input[name=mode]:checked")).value;
}

/** Whether there is a question. */
function asking() {
  return now.like !== null || box.value.trim() !== "";
}

/** @param {number} offset @param {number} k */
function question(offset, k) {
  const what = now.like
    ? { like: { key: now.like.key, partition: now.like.partition }, mode: "vector" }
    : { text: box.value.trim(), mode: mode() };
  const where = filters.where();
  return { ...what, k, offset, ...(where && { where }) };
}

/** Search when the typing pauses. */
function later() {
  clearTimeout(typing);
  typing = window.setTimeout(() => start("new"), PAUSE);
}

/**
 * Start a search that the user asked for. If the server is gone, the watch reports it and recovers.
 *
 * @param {"new" | "more" | "refresh"} how
 */
function start(how) {
  clearTimeout(typing);
  find(how).catch(() => watch.now());
}

/**
 * Search, and show the result unless there is another question by then.
 *
 * @param {"new" | "more" | "refresh"} how
 * @throws {api.ServerGone}
 */
async function find(how) {
  search.abort();
  const mine = (search = new AbortController());
  remember();
  box.parentElement?.toggleAttribute("data-filled", box.value !== "");
  at("clear-question").hidden = box.value === "";
  freshness.fold(now.folded ?? asking());
  if (!asking() || !now.index) {
    void countFacets();
    return greet();
  }
  const asked = JSON.stringify(question(0, 0));
  // The same question again: every difference comes from the table.
  if (how === "new" && asked === now.shown) how = "refresh";
  const shown = results.hits.length;
  const wanted = how === "refresh" ? Math.min(Math.max(shown, PAGE), MOST) : PAGE;
  results.busy(true);
  try {
    const result = await api.search(now.index, question(how === "more" ? shown : 0, wanted), mine.signal);
    if (mine.signal.aborted) return;
    show(how, result);
    now.shown = asked;
    if (how !== "more") void countFacets();
  } catch (error) {
    if (!mine.signal.aborted) failed(error);
  } finally {
    if (mine === search) results.busy(false);
  }
}

/** Count the filters' values for the question. Without these counts those of all rows are shown. */
async function countFacets() {
  counting.abort();
  const mine = (counting = new AbortController());
  const where = filters.where();
  const text = now.like ? "" : box.value.trim();
  if (!now.index || !now.status?.built || (!where && !text)) return filters.count(null);
  const asked = { ...(text && { text, mode: mode() }), ...(where && { where }) };
  try {
    const found = await api.countFacets(now.index, asked, mine.signal);
    if (!mine.signal.aborted) filters.count(found);
  } catch {
    if (!mine.signal.aborted) filters.count(null);
  }
}

/**
 * @param {"new" | "more" | "refresh"} how
 * @param {import("./shapes.js").SearchResult} result
 */
function show(how, result) {
  // A list is of one instant: if the index moved between two pages, the whole list is loaded again.
  const moved = how === "more" && result.instant !== results.instant;
  if (moved) return start("refresh");
  if (now.answered !== result.instant) now.tries = 0;
  now.answered = result.instant;
  if (how === "refresh") return say(results.refresh(result));
  if (how === "more") return results.add(result);
  results.show(result);
  say(result.hits.length ? `${result.hits.length} rows found` : "no rows found");
}

/** @param {unknown} error */
function failed(error) {
  now.answered = null;
  if (!(error instanceof api.ServerError)) throw error;
  now.shown = "";
  if (refused(error)) return;
  now.answered = now.status?.instant ?? "";
  results.clear(failure(error.message, error.hint));
  if (error.status === 429) setTimeout(() => start("new"), 1_000 * Math.max(1, error.wait));
}

/** Show the text in the place of results. It is drawn again only if it changed. */
function greet() {
  now.answered = null;
  now.shown = "";
  const newest = now.commits.findLast((mark) => mark.record)?.record?.time;
  const drawn = JSON.stringify([now.index, now.status, newest, filters.facets.length]);
  const shown = at("state").querySelector(".welcome") && !results.hits.length;
  if (shown && drawn === now.greeted) return;
  now.greeted = drawn;
  results.clear(welcome(now.index, now.status, newestSync(now.commits), exampleButton()));
}

/** A button for a question that the index can answer. */
function exampleButton() {
  const question = example(filters.facets);
  const ask = () => {
    box.value = question;
    typed();
    box.focus();
  };
  return question
    ? make("button", { type: "button", class: "example", onclick: ask }, "Try ", make("q", {}, cut(question, 80)))
    : null;
}

function recommend() {
  const query = box.value.trim();
  if (!query || !now.index) return box.focus();
  const where = filters.where();
  void answer.ask(now.index, { query, k: 5, mode: mode(), ...(where && { where }) });
}

/** @param {import("./shapes.js").Hit} hit */
function moreLike(hit) {
  now.like = hit;
  showLike();
  start("new");
  at("found-title").scrollIntoView({ block: "nearest" });
}

function showLike() {
  const like = at("like");
  like.hidden = now.like === null;
  if (!now.like) return;
  const stop = make(
    "button",
    { type: "button", class: "quiet", onclick: () => unlike() },
    "back to the question",
  );
  like.replaceChildren("Rows like ", make("strong", {}, rowName(now.like)), " ", stop);
}

function unlike() {
  now.like = null;
  showLike();
  box.focus();
  start("new");
}

/**
 * Whether an error means that a key is needed. If so, ask for it.
 *
 * @param {unknown} error
 */
function refused(error) {
  if (!(error instanceof api.ServerError) || error.status !== 401) return false;
  if (!keyForm.hidden) return true;
  at("key-words").textContent = api.hasKey()
    ? "That key was not accepted. Try another one."
    : "This server needs a key.";
  keyForm.hidden = false;
  at("key-text").focus();
  return true;
}

/** @param {api.ServerError} error */
function unavailable(error) {
  freshness.badge("error", error.hint ? `${error.message}: ${error.hint}` : error.message);
  return true;
}

/** @param {number} wait */
function gone(wait) {
  const notice = at("gone");
  if (notice.hidden) notice.textContent = "The server does not answer. Trying again …";
  notice.hidden = false;
  notice.title = `next try in ${wait / 1000} s`;
  document.body.dataset.server = "gone";
  freshness.lost();
}

function back() {
  if (!at("gone").hidden) say("the server is back");
  at("gone").hidden = true;
  keyForm.hidden = true;
  document.body.dataset.server = "there";
}

/** @param {KeyboardEvent} event */
function key(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (
    event.key === "/" &&
    !target.matches("input:not([type=radio], [type=checkbox], [type=range]), select, textarea")
  ) {
    event.preventDefault();
    box.focus();
    box.select();
  } else if (event.key === "Escape" && !keyForm.contains(target)) {
    escape(target);
  }
}

/** Move the focus to the search box; in the box, clear it. @param {HTMLElement} target */
function escape(target) {
  if (now.like) return unlike();
  if (target !== box) return box.focus();
  startOver();
}

function startOver() {
  now.like = null;
  showLike();
  box.value = "";
  answer.clear();
  start("new");
}

/** The question has changed. */
function typed() {
  now.like = null;
  showLike();
  later();
}

box.addEventListener("input", (event) => /** @type {InputEvent} */ (event).isComposing || typed());
box.addEventListener("compositionend", typed);
box.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" && results.focus(0)) event.preventDefault();
});
at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  recommend();
});
at("modes").addEventListener("change", () => start("new"));
at("clear-question").addEventListener("click", () => {
  startOver();
  box.focus();
});
at("fold").addEventListener("click", () => {
  now.folded = !at("strip").hidden;
  freshness.fold(now.folded);
});
window.addEventListener("hashchange", () => {
  if (!now.index) return;
  box.value = "";
  restore();
  watch.now();
});
chooser.addEventListener("change", () => {
  choose(chooser.value);
  watch.now();
  start("new");
});
keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  api.keepKey(/** @type {HTMLInputElement} */ (at("key-text")).value);
  keyForm.reset();
  keyForm.hidden = true;
  now.answered = null;
  watch.now();
});
document.addEventListener("keydown", key);
keepTime();
if (matchMedia("(max-width: 60rem)").matches) at("filters-fold").removeAttribute("open");
void watch.run();
