// The chosen theme: auto, light or dark. A classic script, so that it runs before the first paint.
(() => {
  const THEMES = ["auto", "light", "dark"];
  const root = document.documentElement;

  /** What was chosen before; storage may be switched off. */
  function remembered() {
    try {
      const theme = localStorage.getItem("lakewake-theme");
      return THEMES.includes(theme) ? theme : "auto";
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
      // It then lasts until the page is left.
    }
  }

  root.dataset.theme = remembered();
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => (button.textContent = `Theme: ${root.dataset.theme}`);
    label();
    button.addEventListener("click", () => {
      choose(THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length]);
      label();
    });
  });
})();
