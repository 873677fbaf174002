// Light, dark, or as the system has it; remembered for this browser.

const STORED = "lib-server.theme";
export const THEMES = ["system", "light", "dark"];

export const current = () => {
  const stored = window.localStorage.getItem(STORED);
  return THEMES.includes(stored) ? stored : "system";
};

export function apply(choice = current()) {
  if (choice === "system") {
    delete document.documentElement.dataset.theme;
    window.localStorage.removeItem(STORED);
  } else {
    document.documentElement.dataset.theme = choice;
    window.localStorage.setItem(STORED, choice);
  }
}
