// Tabs: one of several panels is shown; arrows move between them.

import { button, h, set } from "./html.js";

// Returns the strip and the panels. `parts` maps a name to [title, element of the panel];
// `chosen(name)` is called when another one is shown.
export function tabs(parts, first, chosen) {
  const names = Object.keys(parts);
  const buttons = {};
  const choose = (name) => {
    for (const each of names) {
      set(buttons[each], { "aria-selected": String(each === name), tabindex: each === name ? 0 : -1 });
      parts[each][1].hidden = each !== name;
    }
    chosen(name);
  };
  for (const [name, [title, panel]] of Object.entries(parts)) {
    buttons[name] = button(title, () => choose(name), { role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, "data-tab": name });
    set(panel, { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}`, tabindex: 0 });
  }
  const step = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    const name = names[(names.indexOf(event.target.dataset.tab) + by + names.length) % names.length];
    choose(name);
    buttons[name].focus();
    event.preventDefault();
  };
  choose(names.includes(first) ? first : names[0]);
  return [h("div.tabs", { role: "tablist", on: { keydown: step } }, Object.values(buttons)), ...names.map((name) => parts[name][1])];
}
