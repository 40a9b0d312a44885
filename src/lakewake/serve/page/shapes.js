// The shapes of the server's answers, as types for editors. Nothing here runs.

/**
 * @typedef {{key: string, partition: string}} RowId
 *
 * @typedef {RowId & {
 *   score: number, similarity: number | null, text: string | null, field: string, chunk: number,
 *   highlight: [number, number] | null, payload: Record<string, unknown>
 * }} Hit  `highlight` counts code points of `text`.
 *
 * @typedef {{index: string, instant: string, mode: string, hits: Hit[], more: boolean,
 *   fallback?: string | null}} SearchResult
 *
 * @typedef {{
 *   query: string, message: string, answered_by: "model" | "extract" | "none",
 *   used: RowId[], hits: Hit[], instant: string, reason: string | null
 * }} Recommendation
 *
 * @typedef {{
 *   time: string, index: string, action: string, why: string, from_instant: string,
 *   to_instant: string, rows_changed: number, rows_deleted: number, chunks_upserted: number,
 *   chunks_deleted: number, embedded: number, reused: number, quarantined: number,
 *   seconds: Record<string, number>, error: string | null,
 *   reads?: {groups: number, bytes: number, groups_in_table: number | null, bytes_in_table: number | null} | null
 * }} SyncRecord
 *
 * @typedef {{
 *   instant: string, action: string, completed: string | null, absorbed: boolean,
 *   synced: string | null, record: SyncRecord | null
 * }} CommitMark
 *
 * @typedef {{
 *   index: string, built: boolean, in_step: boolean, table: string, instant: string,
 *   newest_instant: string, lag_commits: number, lag_seconds: number, rows: number, chunks: number,
 *   quarantined: number, would: string, why: string, fresh: boolean, freshness_limit: number | null,
 *   store: string, generation: number, duplicates: number, model: Record<string, unknown>,
 *   watch?: {running: boolean, restarts: number, last_words: string[]} | null
 * }} Status
 *
 * @typedef {{
 *   column: string, type: "text" | "number" | "boolean" | "time",
 *   values: {value: string | boolean | null, count: number}[] | null,
 *   min?: number | string | null, max?: number | string | null, more?: number, of_list?: boolean
 * }} Facet
 *
 * @typedef {{
 *   name: string, instant: string, rows: number, chunks: number, payload: string[],
 *   modes: string[], fresh: boolean, has_language_model: boolean, has_reranking_model: boolean
 * }} IndexSummary
 *
 * @typedef {RowId & {reason: string, instant: string, attempts: number}} QuarantinedRow
 *
 * @typedef {{
 *   id: string, index: string, kind: "sync" | "plan" | "verify" | "retry", by: string, asked: string,
 *   state: "waiting" | "running" | "done" | "failed" | "expired", ended: string | null,
 *   report: Record<string, any> | null, error: string | null, hint: string
 * }} Job
 *
 * @typedef {Record<string, unknown>} Where  A filter as JSON.
 */

export {};
