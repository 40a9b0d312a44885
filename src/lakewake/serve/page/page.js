// The page: one question, its results, its recommendation, and the freshness of the index.

import * as api from "./api.js";
import { Answer } from "./answer.js";
import { at, make, say } from "./elements.js";
import { Filters } from "./filters.js";
import { Freshness, newestSync } from "./freshness.js";
import { Results, failure, welcome } from "./results.js";
import { rowName } from "./words.js";
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
};

let search = new AbortController();
let typing = 0;

const freshness = new Freshness();
const filters = new Filters(at("filters"), () => later());
const results = new Results({ like: moreLike, more: () => start("more") });
const answer = new Answer({
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
    if (facets) filters.show(facets);
  }
  const trouble = status.in_step ? "" : await troubleOf(status);
  if (index !== now.index) return;
  now.status = status;
  freshness.show(status, now.commits, trouble);
  await follow(status);
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
  const asked = new URLSearchParams(location.hash.slice(1));
  chooser.replaceChildren(...now.indexes.map(({ name }) => make("option", { value: name }, name)));
  chooser.disabled = now.indexes.length < 2;
  box.value ||= asked.get("q") ?? "";
  const mode = document.querySelector(
    `input[name=mode][value="${CSS.escape(asked.get("mode") ?? "vector")}"]`,
  );
  if (mode) /** @type {HTMLInputElement} */ (mode).checked = true;
  choose(now.indexes.find(({ name }) => name === asked.get("index"))?.name ?? now.indexes[0].name);
}

/** @param {string} name */
function choose(name) {
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
  freshness.reset();
  answer.clear();
  results.clear();
  showLike();
  remember();
}

/** Keep the question in the address, after the #: it can be shared, and no server logs it. */
function remember() {
  const kept = new URLSearchParams({ index: now.index, mode: mode(), ...(box.value && { q: box.value }) });
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
  if (!asking() || !now.index) return greet();
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
  } catch (error) {
    if (!mine.signal.aborted) failed(error);
  } finally {
    if (mine === search) results.busy(false);
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
  const words = welcome(now.index, now.status, newestSync(now.commits));
  if (at("state").textContent !== words.textContent || results.hits.length) results.clear(words);
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
if (matchMedia("(max-width: 60rem)").matches) at("filters-fold").removeAttribute("open");
void watch.run();
