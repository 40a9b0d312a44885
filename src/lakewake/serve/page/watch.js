// Polls the server: every second while the page is visible, less often while the server is gone.

import { ServerError, ServerGone } from "./api.js";

const EVERY = 1_000;
const AT_MOST = 10_000;

/** Calls `look` for as long as the page is open, one call at a time. */
export class Watch {
  /**
   * @param {() => Promise<void>} look
   * @param {{back: () => void, gone: (wait: number) => void, refused: (error: ServerError) => void}} report
   * @param {number} every  milliseconds between two calls
   */
  constructor(look, report, every = EVERY) {
    this.look = look;
    this.every = every;
    this.report = report;
    this.misses = 0;
    this.again = false;
    this.wake = () => {};
    document.addEventListener("visibilitychange", () => this.now());
  }

  /** Call `look` at once, without the pause. */
  now() {
    this.again = true;
    this.wake();
  }

  async run() {
    for (;;) {
      if (document.hidden) await this.pause(null);
      else await this.pause(await this.once());
    }
  }

  /** One call. @returns {Promise<number>} milliseconds until the next */
  async once() {
    try {
      await this.look();
      this.misses = 0;
      this.report.back();
      return this.every;
    } catch (error) {
      return this.missed(error);
    }
  }

  /** @param {unknown} error */
  missed(error) {
    const wait = Math.min(EVERY * 2 ** this.misses++, AT_MOST);
    if (error instanceof ServerGone) {
      this.report.gone(wait);
      return wait;
    }
    if (!(error instanceof ServerError)) {
      // A fault of this page. It shows in the console, and the page stays alive.
      console.error(error);
      return wait;
    }
    this.report.refused(error);
    return Math.max(wait, error.wait * 1_000);
  }

  /**
   * Wait this many milliseconds; null: until woken.
   *
   * @param {number | null} ms
   * @returns {Promise<void>}
   */
  pause(ms) {
    const again = this.again;
    this.again = false;
    if (again) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = ms === null ? undefined : setTimeout(resolve, ms);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
