// The server, as functions. There are two failures: it answered with an error, or it is gone.

/** The server answered with an error. */
export class ServerError extends Error {
  /**
   * @param {number} status
   * @param {string} fact
   * @param {string} hint
   * @param {number} wait  seconds to wait before the next try; 0 if unknown
   */
  constructor(status, fact, hint, wait = 0) {
    super(fact);
    this.status = status;
    this.hint = hint;
    this.wait = wait;
  }
}

/** The server did not answer: it is down, out of reach, or hangs. */
export class ServerGone extends Error {}

/** Milliseconds that a request may take before the server counts as gone. */
const PATIENCE = 15_000;
const KEY = "lakewake-key";

/** @param {unknown} error */
export function wasAborted(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/** @param {string} key */
export function keepKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** Whether a key was entered in this tab. */
export function hasKey() {
  return sessionStorage.getItem(KEY) !== null;
}

/** @returns {Promise<import("./shapes.js").IndexSummary[]>} */
export async function indexes() {
  return (await answer(await ask("indexes"))).indexes;
}

/**
 * @param {string} index
 * @returns {Promise<import("./shapes.js").Status>}
 */
export async function status(index) {
  return answer(await ask(path(index, "status")));
}

/**
 * The newest commits of the table, oldest first.
 *
 * @param {string} index
 * @returns {Promise<import("./shapes.js").CommitMark[]>}
 */
export async function commits(index) {
  /** @type {import("./shapes.js").CommitMark[]} */
  const marks = listed(await answer(await ask(path(index, "commits"))), "commits");
  return marks.sort((a, b) => (order(a) < order(b) ? -1 : 1));
}

/**
 * Why the newest sync failed; '' if it did not.
 *
 * @param {string} index
 * @returns {Promise<string>}
 */
export async function lastFailure(index) {
  const [newest] = await syncs(index, 1);
  return newest?.error ?? "";
}

/**
 * @param {string} index
 * @returns {Promise<import("./shapes.js").Facet[]>}
 */
export async function facets(index) {
  return listed(await answer(await ask(path(index, "facets"))), "facets");
}

/**
 * The facets of the rows that a question and its filters leave.
 *
 * @param {string} index
 * @param {Record<string, unknown>} question
 * @param {AbortSignal} signal
 * @returns {Promise<import("./shapes.js").Facet[]>}
 */
export async function countFacets(index, question, signal) {
  return listed(await answer(await ask(path(index, "facets"), { body: question, signal })), "facets");
}

/**
 * What the last syncs did, newest first.
 *
 * @param {string} index
 * @param {number} limit
 * @returns {Promise<import("./shapes.js").SyncRecord[]>}
 */
export async function syncs(index, limit) {
  return listed(await answer(await ask(path(index, `history?limit=${limit}`))), "history");
}

/**
 * @param {string} index
 * @returns {Promise<{rows: number, quarantine: import("./shapes.js").QuarantinedRow[]}>}
 */
export async function quarantine(index) {
  return answer(await ask(path(index, "quarantine")));
}

/**
 * @param {string} index
 * @returns {Promise<{may_ask: boolean, jobs: import("./shapes.js").Job[]}>}
 */
export async function jobs(index) {
  return answer(await ask(path(index, "jobs")));
}

/**
 * Ask the syncing process for a job.
 *
 * @param {string} index
 * @param {string} kind
 * @returns {Promise<import("./shapes.js").Job>}
 */
export async function askFor(index, kind) {
  return answer(await ask(path(index, "jobs"), { body: { kind } }));
}

/**
 * @param {string} index
 * @param {Record<string, unknown>} question
 * @param {AbortSignal} signal
 * @returns {Promise<import("./shapes.js").SearchResult>}
 */
export async function search(index, question, signal) {
  return answer(await ask(path(index, "search"), { body: question, signal }));
}

/**
 * A recommendation. `piece` is called with each part of its message as it arrives.
 *
 * @param {string} index
 * @param {Record<string, unknown>} question
 * @param {AbortSignal} signal
 * @param {(text: string) => void} piece
 * @returns {Promise<import("./shapes.js").Recommendation>}
 */
export async function recommend(index, question, signal, piece) {
  const response = await ask(path(index, "recommend"), {
    body: { ...question, stream: true },
    signal,
    patience: 120_000,
  });
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return answer(response);
  for await (const [name, data] of events(response)) {
    if (name === "piece") piece(data.text);
    if (name === "answer") return data;
    if (name === "error") throw new ServerError(500, data.error, data.hint ?? "");
  }
  throw new ServerGone("the answer broke off");
}

/**
 * @param {string} index
 * @param {string} what
 */
function path(index, what) {
  return `indexes/${encodeURIComponent(index)}/${what}`;
}

/** @param {import("./shapes.js").CommitMark} mark */
function order(mark) {
  // A commit in flight is the newest: it completes after all that are complete.
  return `${mark.completed ? 0 : 1}${mark.completed ?? ""} ${mark.instant}`;
}

/**
 * A list, alone or under its name.
 *
 * @param {any} value
 * @param {string} name
 */
function listed(value, name) {
  return Array.isArray(value) ? value : value[name];
}

/**
 * @param {string} where
 * @param {{body?: object, signal?: AbortSignal, patience?: number}} [how]
 * @returns {Promise<Response>}
 */
async function ask(where, { body, signal, patience = PATIENCE } = {}) {
  const limit = AbortSignal.timeout(patience);
  const response = await orGone(
    fetch(where, {
      method: body ? "POST" : "GET",
      headers: headers(body !== undefined),
      body: body && JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      cache: "no-store",
    }),
  );
  if (!response.ok) throw await refusal(response);
  return response;
}

/**
 * The value of a promise. A failure of the network becomes `ServerGone`.
 *
 * @template T
 * @param {Promise<T>} promise
 * @returns {Promise<T>}
 */
async function orGone(promise) {
  try {
    return await promise;
  } catch (error) {
    if (wasAborted(error)) throw error;
    throw new ServerGone("the server does not answer", { cause: error });
  }
}

/** @param {Response} response */
async function answer(response) {
  return orGone(response.json());
}

/** @param {boolean} json  whether the request has a body */
function headers(json) {
  const sent = new Headers(json ? { "Content-Type": "application/json" } : {});
  const key = sessionStorage.getItem(KEY);
  if (key !== null) sent.set("Authorization", `Bearer ${key}`);
  return sent;
}

/** @param {Response} response */
async function refusal(response) {
  const body = await response.json().catch(() => ({}));
  const fact = typeof body.error === "string" ? body.error : `the server answered ${response.status}`;
  const hint = typeof body.hint === "string" ? body.hint : "";
  return new ServerError(response.status, fact, hint, Number(response.headers.get("retry-after")) || 0);
}

/**
 * The server-sent events of a response, as [name, data].
 *
 * @param {Response} response
 * @returns {AsyncGenerator<[string, any]>}
 */
async function* events(response) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await orGone(reader.read());
    if (done) return;
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const event = readEvent(block);
      if (event) yield event;
    }
  }
}

/**
 * @param {string} block
 * @returns {[string, any] | null}  null for a comment, which only keeps the connection open
 */
function readEvent(block) {
  const fields = block.split("\n").map((line) => /^(\w+): ?(.*)$/.exec(line) ?? []);
  const data = fields.filter(([, name]) => name === "data").map(([, , value]) => value);
  const name = fields.find(([, field]) => field === "event")?.[2] ?? "message";
  return data.length ? [name, JSON.parse(data.join("\n"))] : null;
}
