// A question in a dialog, which keeps the focus while it is open and gives it back.

import { button, fill, h } from "./html.js";

// Shows a dialog; resolves when it is closed.
export function show(title, ...content) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("h2", { id: "dialog-title" }, title), content);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// Resolves to { text } if the person agrees, to null if not.
export function confirm({ title, detail, yes, field, danger = false }) {
  return new Promise((resolve) => {
    const input = field ? h("input", { type: "text", id: "dialog-field", maxlength: 500 }) : null;
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" });
    let answer = null;
    const form = h("form", { method: "dialog", on: { submit: () => { answer = { text: input?.value ?? "" }; } } },
      h("h2", { id: "dialog-title" }, title),
      detail ? h("p", {}, detail) : null,
      input ? [h("label", { for: "dialog-field" }, field), input] : null,
      h("div.actions", {},
        button("Back", () => dialog.close()),
        h("button", { type: "submit", class: danger ? "danger" : "primary" }, yes)));
    fill(dialog, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
