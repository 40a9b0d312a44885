// The page of operators: what each index holds, what its syncs did, and jobs for the syncing process.

import * as api from "./api.js";
import { chart } from "./charts.js";
import { at, keepTime, make, say, short, when } from "./elements.js";
import { standing } from "./freshness.js";
import { Watch } from "./watch.js";
import { commitName, count, duration, number } from "./words.js";

/** Milliseconds between two looks. */
const EVERY = 3_000;
/** How many syncs the charts show, and how many the table shows at first. */
const CHARTED = 60;
const LISTED = 10;
/** The most code points of a value that are shown; its tooltip has the rest. */
const VALUE = 160;

const JOBS = {
  sync: ["Sync now", "Bring the index to the table's newest commit"],
  plan: ["Plan", "What the next sync would do; reads the new commits"],
  verify: ["Verify", "Compare the index with the whole table"],
  retry: ["Retry quarantine", "Try the rows again that could not be embedded"],
};
const STATES = {
  waiting: "waits for the syncing process",
  running: "is being done",
  done: "done",
  failed: "failed",
  expired: "nobody did it within an hour",
};

const keyForm = /** @type {HTMLFormElement} */ (at("key"));

const now = {
  /** @type {import("./shapes.js").IndexSummary[]} */
  indexes: [],
  /** @type {Map<string, import("./shapes.js").Status | Error>} */
  statuses: new Map(),
  index: "",
  /** What is drawn of the chosen index, as JSON. */
  drawn: "",
  /** The rows of the history that are shown. */
  listed: LISTED,
  mayAsk: false,
};

const watch = new Watch(look, { back, gone, refused }, EVERY);

async function look() {
  now.indexes = await api.indexes();
  if (!now.indexes.some(({ name }) => name === now.index)) now.index = chosen();
  await Promise.all(now.indexes.map(async ({ name }) => now.statuses.set(name, await statusOf(name))));
  at("search").setAttribute("href", `./#${new URLSearchParams({ index: now.index })}`);
  drawIndexes();
  await lookAt(now.index);
}

/** The status of an index, or why there is none: one that is damaged must not hide the others. @param {string} name */
async function statusOf(name) {
  try {
    return await api.status(name);
  } catch (error) {
    if (!(error instanceof api.ServerError) || error.status === 401) throw error;
    return error;
  }
}

/** The index that the address names, else the first. */
function chosen() {
  const asked = new URLSearchParams(location.hash.slice(1)).get("index");
  return now.indexes.find(({ name }) => name === asked)?.name ?? now.indexes[0].name;
}

/** @param {string} index */
async function lookAt(index) {
  try {
    const [jobs, records, commits, refused] = await Promise.all([
      api.jobs(index),
      api.syncs(index, CHARTED),
      orNothing(api.commits(index), []),
      orNothing(api.quarantine(index), { rows: 0, quarantine: [] }),
    ]);
    if (index !== now.index) return;
    now.mayAsk = jobs.may_ask;
    showRights(jobs.may_ask ? "" : "read");
    draw({ jobs: jobs.jobs, records, commits, refused });
  } catch (error) {
    if (!(error instanceof api.ServerError) || error.status !== 403) throw error;
    // A key that sees some rows only: figures of all rows are not for it.
    showRights("limited");
    at("detail").replaceChildren();
    now.drawn = "";
  }
}

/**
 * What the server answers, or nothing if the index or its table cannot be read.
 *
 * @template T
 * @param {Promise<T>} asked
 * @param {T} nothing
 * @returns {Promise<T>}
 */
async function orNothing(asked, nothing) {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof api.ServerError && error.status === 503) return nothing;
    throw error;
  }
}

/** @param {"" | "read" | "limited"} kind */
function showRights(kind) {
  const rights = at("rights");
  rights.hidden = kind === "";
  if (rights.dataset.kind === kind) return;
  rights.dataset.kind = kind;
  const words =
    kind === "limited"
      ? "Your key may see some of the rows only, and what is here counts all of them."
      : "Read only. With an admin key you can sync, plan, verify and retry from here: ";
  const command = make("code", {}, "lakewake keys add FILE NAME --scope admin");
  rights.replaceChildren(
    words,
    kind === "read" ? command : "",
    " ",
    make("button", { type: "button", class: "quiet", onclick: askForKey }, "Enter a key"),
  );
}

function drawIndexes() {
  const heads = ["Index", "State", "Rows", "Chunks", "Behind", "Quarantine", "Next sync"];
  const table = at("indexes");
  const focused = document.activeElement?.getAttribute("data-index");
  table.replaceChildren(
    make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
    make("tbody", {}, ...now.indexes.map(indexRow)),
  );
  if (focused)
    /** @type {HTMLElement | null} */ (table.querySelector(`[data-index="${CSS.escape(focused)}"]`))?.focus();
}

/** @param {import("./shapes.js").IndexSummary} index */
function indexRow({ name }) {
  const status = now.statuses.get(name);
  const button = make(
    "button",
    {
      type: "button",
      class: "quiet",
      "data-index": name,
      "aria-pressed": String(name === now.index),
      onclick: () => choose(name),
    },
    name,
  );
  const head = make("th", { scope: "row" }, button);
  if (!status || status instanceof Error) {
    const words = status ? status.message : "…";
    return make("tr", { "data-state": "late" }, head, make("td", { colspan: 6, class: "wrong" }, short(words, VALUE)));
  }
  const { state, words } = standing(status, []);
  const cell = (/** @type {string} */ label, /** @type {...(Node | string)} */ ...inside) =>
    make("td", { "data-label": label }, ...inside);
  const behind = status.lag_commits
    ? `${count(status.lag_commits, "commit")}, ${duration(status.lag_seconds)}`
    : "–";
  return make(
    "tr",
    { "data-state": state, "aria-current": name === now.index ? "true" : null },
    head,
    cell("State", make("span", { class: "badge", "data-state": state }, make("span", { class: "lamp" })), state === "step" ? "in step" : words),
    cell("Rows", number(status.rows)),
    cell("Chunks", number(status.chunks)),
    cell("Behind", behind),
    cell("Quarantine", status.quarantined ? make("strong", { class: "wrong" }, number(status.quarantined)) : "0"),
    cell("Next sync", status.would),
  );
}

/** @param {string} name */
function choose(name) {
  now.index = name;
  now.drawn = "";
  now.listed = LISTED;
  history.replaceState(null, "", `#${new URLSearchParams({ index: name })}`);
  at("detail").replaceChildren();
  drawIndexes();
  watch.now();
}

/**
 * What the server answered about the chosen index.
 *
 * @typedef {{
 *   jobs: import("./shapes.js").Job[], records: import("./shapes.js").SyncRecord[],
 *   commits: import("./shapes.js").CommitMark[],
 *   refused: {rows: number, quarantine: import("./shapes.js").QuarantinedRow[]}
 * }} Found
 */

/** Draw the chosen index again if something changed. @param {Found} found */
function draw(found) {
  const status = now.statuses.get(now.index);
  const known = status && !(status instanceof Error) ? status : null;
  const steady = known && { ...known, lag_seconds: 0, last_sync: null, hot: null };
  const drawn = JSON.stringify([now.index, steady, found, now.mayAsk, now.listed]);
  if (drawn === now.drawn) return;
  now.drawn = drawn;
  const focused = document.activeElement?.id;
  const open = [...document.querySelectorAll("#detail details[open]")].map((one) => one.id);
  document.title = `${now.index} · Operators · Lakewake`;
  at("detail").replaceChildren(
    make("h1", {}, now.index),
    ...(known ? [facts(known)] : []),
    actions(known),
    section("jobs", "Jobs", jobList(found.jobs)),
    section("charts", "Syncs", charts(found.records), syncTable(found.records)),
    section("plan", "Plan", planned(known, found.commits)),
    section("quarantine", "Quarantine", quarantineTable(found.refused)),
    ...(known ? [section("models", "Models", models(known))] : []),
  );
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused) document.getElementById(focused)?.focus();
}

/**
 * @param {string} id
 * @param {string} title
 * @param {...HTMLElement} inside
 */
function section(id, title, ...inside) {
  return make("section", { id: `section-${id}`, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` }, title), ...inside);
}

/** @param {import("./shapes.js").Status} status */
function facts(status) {
  const watching = status.watch
    ? status.watch.running
      ? `runs beside this server${status.watch.restarts ? `; ${count(status.watch.restarts, "restart")}` : ""}`
      : ["has stopped.", ...status.watch.last_words].join(" ")
    : "not beside this server";
  return pairs([
    ["table", status.table],
    ["store", status.store],
    ["in the index", status.instant ? `commit ${status.instant}` : "nothing yet"],
    ["generation", number(status.generation)],
    ["duplicates", number(status.duplicates)],
    ["freshness limit", status.freshness_limit === null ? "none" : duration(status.freshness_limit)],
    ["syncing process", watching],
  ]);
}

/** @param {[string, string][]} facts */
function pairs(facts) {
  const shown = facts.filter(([, value]) => value !== "");
  return make(
    "dl",
    { class: "facts" },
    ...shown.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, short(value, VALUE)))),
  );
}

/** @param {import("./shapes.js").Status | null} status */
function actions(status) {
  if (!now.mayAsk) return make("div", { hidden: true });
  const buttons = Object.entries(JOBS).map(([kind, [label, title]]) =>
    make(
      "button",
      {
        type: "button",
        id: `ask-${kind}`,
        class: kind === "sync" ? "strong" : "plain",
        title,
        disabled: kind === "retry" && !status?.quarantined,
        onclick: () => void ask(kind),
      },
      label,
    ),
  );
  return make("div", { class: "actions", role: "group", "aria-label": "Ask for a job" }, ...buttons);
}

/** @param {string} kind */
async function ask(kind) {
  try {
    const job = await api.askFor(now.index, kind);
    say(`${job.kind}: ${STATES[job.state]}`);
    watch.now();
  } catch (error) {
    if (error instanceof api.ServerError) refused(error);
    else watch.now();
  }
}

/** @param {import("./shapes.js").Job[]} jobs */
function jobList(jobs) {
  if (!jobs.length) return make("p", { class: "small" }, "Nothing was asked for yet.");
  return make("ol", { class: "jobs" }, ...jobs.map(jobItem));
}

/** @param {import("./shapes.js").Job} job */
function jobItem(job) {
  const bad = job.state === "failed" || job.state === "expired" || job.report?.agrees === false;
  const head = [
    make("strong", {}, job.kind),
    make("span", { class: bad ? "wrong" : "state" }, outcome(job)),
    make("span", { class: "small" }, when(job.asked), " by ", short(job.by, 60)),
  ];
  const more = job.report ? Object.entries(job.report).filter(([, value]) => typeof value !== "object") : [];
  return make(
    "li",
    { "data-state": job.state },
    make("p", {}, ...head),
    job.error && make("p", { class: "wrong" }, job.hint ? `${job.error}. ${job.hint}` : job.error),
    more.length > 0 &&
      make(
        "details",
        { id: `job-${job.id}` },
        make("summary", {}, "The whole report"),
        pairs(more.map(([name, value]) => [name.replaceAll("_", " "), String(value)])),
      ),
  );
}

/** @param {import("./shapes.js").Job} job */
function outcome({ kind, state, report }) {
  if (state !== "done" || !report) return STATES[state] ?? state;
  const n = (/** @type {unknown} */ value) => number(Number(value) || 0);
  const rows = (/** @type {unknown} */ value) => count(Number(value) || 0, "row");
  if (kind === "verify")
    return report.agrees
      ? `agrees with its table: ${rows(report.rows)}`
      : `differs: ${["missing", "orphaned", "stale"].map((fault) => `${n(report[`${fault}_count`])} ${fault}`).join(", ")}`;
  if (kind === "plan")
    return report.action === "nothing"
      ? "nothing to do"
      : `${report.action}: ${rows(report.rows_changed)} changed, ${n(report.rows_deleted)} deleted, ${n(report.to_embed)} to embed`;
  return report.action === "nothing"
    ? "nothing to do"
    : `${report.action}: ${n(report.embedded)} embedded, ${n(report.reused)} reused, ${n(report.rows_deleted)} deleted`;
}

/** @param {import("./shapes.js").SyncRecord[]} records */
function charts(records) {
  const old = [...records].reverse();
  return make(
    "div",
    { class: "charts" },
    chart(
      "Texts",
      [
        { name: "embedded", kind: "embedded", of: (record) => record.embedded },
        { name: "reused", kind: "reused", of: (record) => record.reused },
      ],
      old,
      number,
    ),
    chart(
      "Rows",
      [
        { name: "changed", kind: "changed", of: (record) => record.rows_changed },
        { name: "deleted", kind: "deleted", of: (record) => record.rows_deleted },
      ],
      old,
      number,
    ),
    chart("Seconds", [{ name: "total", kind: "embedded", of: (record) => record.seconds.total ?? 0 }], old, duration, 0.01),
  );
}

/** @param {import("./shapes.js").SyncRecord[]} records */
function syncTable(records) {
  if (!records.length) return make("p", { class: "small" }, "No sync is on record yet.");
  const heads = ["When", "Action", "Changed", "Deleted", "Embedded", "Reused", "Took", "Why"];
  const rows = records.slice(0, now.listed).map((record) =>
    make(
      "tr",
      {},
      make("th", { scope: "row", "data-label": "When" }, when(record.time)),
      make("td", { "data-label": "Action", class: record.error ? "wrong" : null }, record.action),
      ...[record.rows_changed, record.rows_deleted, record.embedded, record.reused].map((n, i) =>
        make("td", { "data-label": heads[i + 2], class: "figure" }, number(n)),
      ),
      make("td", { "data-label": "Took", class: "figure" }, duration(record.seconds.total ?? 0)),
      make("td", { "data-label": "Why", class: record.error ? "wrong" : null }, short(record.error ?? record.why, VALUE)),
    ),
  );
  const left = records.length - rows.length;
  const more = make("button", { type: "button", id: "more-syncs", class: "quiet", onclick: showMore }, `${number(left)} more`);
  return make("div", {}, wide("syncs", heads, rows), ...(left > 0 ? [more] : []));
}

function showMore() {
  now.listed = CHARTED;
  watch.now();
}

/**
 * @param {string} name
 * @param {string[]} heads
 * @param {HTMLElement[]} rows
 */
function wide(name, heads, rows) {
  const head = make("tr", {}, ...heads.map((words) => make("th", { scope: "col" }, words)));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  return make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": name }, table);
}

/**
 * @param {import("./shapes.js").Status | null} status
 * @param {import("./shapes.js").CommitMark[]} commits
 */
function planned(status, commits) {
  const pending = commits.filter((mark) => !mark.absorbed);
  const next = status ? `${status.would}: ${status.why}` : "not known while the index cannot be read";
  return make(
    "div",
    {},
    make("p", {}, make("strong", {}, "The next sync "), next),
    make("p", { class: "small" }, pending.length ? `${count(pending.length, "commit")} to absorb:` : "No commit waits."),
    make("ol", { class: "pending" }, ...pending.slice(-LISTED).map(pendingItem)),
  );
}

/** @param {import("./shapes.js").CommitMark} mark */
function pendingItem(mark) {
  const time = mark.completed ? when(mark.completed) : "in flight";
  return make("li", {}, commitName(mark.instant, mark.completed), " ", make("span", { class: "small" }, mark.action, " · ", time));
}

/** @param {{rows: number, quarantine: import("./shapes.js").QuarantinedRow[]}} refused */
function quarantineTable({ rows, quarantine }) {
  if (!rows) return make("p", { class: "small" }, "Every row could be embedded.");
  const divided = quarantine.some((row) => row.partition !== "");
  const heads = ["Key", ...(divided ? ["Partition"] : []), "Reason", "Tries"];
  const listed = quarantine.map((row) =>
    make(
      "tr",
      {},
      make("th", { scope: "row", "data-label": "Key" }, short(row.key, 60)),
      divided && make("td", { "data-label": "Partition" }, short(row.partition, 60)),
      make("td", { "data-label": "Reason" }, short(row.reason, VALUE)),
      make("td", { "data-label": "Tries", class: "figure" }, number(row.attempts)),
    ),
  );
  const left = rows - listed.length;
  return make(
    "div",
    {},
    make("p", { class: "small" }, `The index holds nothing of ${count(rows, "row")}.`),
    wide("quarantine", heads, listed),
    ...(left > 0 ? [make("p", { class: "small" }, `and ${number(left)} more`)] : []),
  );
}

/** @param {import("./shapes.js").Status} status */
function models(status) {
  const summary = now.indexes.find(({ name }) => name === now.index);
  const embedding = Object.entries(status.model)
    .filter(([, value]) => ["string", "number", "boolean"].includes(typeof value) && value !== "")
    .map(([name, value]) => /** @type {[string, string]} */ ([name.replaceAll("_", " "), String(value)]));
  return pairs([
    ...embedding,
    ["re-ranking", summary?.has_reranking_model ? "a model re-ranks the best rows" : "none"],
    [
      "recommendations",
      summary?.has_language_model
        ? "a language model writes them"
        : "quoted from the rows: no language model is configured ([recommend] url)",
    ],
  ]);
}

function askForKey() {
  at("key-words").textContent = api.hasKey() ? "Another key, such as one with scope admin:" : "A key, such as one with scope admin:";
  keyForm.hidden = false;
  at("key-text").focus();
}

/** @param {import("./api.js").ServerError} error */
function refused(error) {
  if (error.status === 401) {
    if (keyForm.hidden) askForKey();
    at("key-words").textContent = api.hasKey() ? "That key was not accepted. Try another one." : "This server needs a key.";
    return;
  }
  const notice = at("gone");
  notice.textContent = error.hint ? `${error.message}. ${error.hint}` : error.message;
  notice.hidden = false;
}

function gone() {
  at("gone").textContent = "The server does not answer. Trying again …";
  at("gone").hidden = false;
}

function back() {
  at("gone").hidden = true;
}

keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  api.keepKey(/** @type {HTMLInputElement} */ (at("key-text")).value);
  keyForm.reset();
  keyForm.hidden = true;
  now.drawn = "";
  watch.now();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !keyForm.hidden) keyForm.hidden = true;
});
window.addEventListener("hashchange", () => now.indexes.length && choose(chosen()));
keepTime();
void watch.run();
