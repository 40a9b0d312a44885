// The chosen theme: auto, light or dark. A classic script, so that it runs before the first paint.
(() => {
  const THEMES = ["auto", "light", "dark"];
  const root = document.documentElement;

  /** The theme chosen before; storage may be disabled. */
  function remembered() {
    try {
      return localStorage.getItem("lakewake-theme") ?? "auto";
    } catch {
      return "auto";
    }
  }

  /** @param {string} theme */
  function choose(theme) {
    root.dataset.theme = theme;
    try {
      localStorage.setItem("lakewake-theme", theme);
    } catch {
      // Without storage, the choice lasts until the page is closed.
    }
  }

  /** @param {HTMLElement} button */
  function attach(button) {
    const label = () => (button.textContent = `Theme: ${root.dataset.theme}`);
    label();
    button.addEventListener("click", () => {
      choose(THEMES[(THEMES.indexOf(root.dataset.theme ?? "auto") + 1) % THEMES.length]);
      label();
    });
  }

  const before = remembered();
  root.dataset.theme = THEMES.includes(before) ? before : "auto";
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    if (button) attach(button);
  });
})();
