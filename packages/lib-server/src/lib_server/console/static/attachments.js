// Files beside a message: chosen, dropped or pasted; they travel in the message itself.

import { button, fill, h } from "./html.js";
import { announce } from "./state.js";
import { number, plural } from "./text.js";

const MOST_BYTES = 700000; // the body of a request is at most 1 MiB, and base64 takes a third more

const base64 = (bytes) => {
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return window.btoa(letters);
};

const typeOf = (file) => (file.type.startsWith("image/") ? "image" : file.type.startsWith("audio/") ? "audio" : "file");

export class Attachments {
  #files = [];

  constructor(refuse) {
    this.refuse = refuse;
    this.input = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files to attach", on: { change: () => this.#take(this.input.files) } });
    this.button = button("Attach", () => this.input.click());
    this.list = h("ul.attachments", { "aria-label": "Attachments" });
  }

  // Takes what is pasted or dropped on the element.
  listen(element) {
    element.addEventListener("paste", (event) => this.#take(event.clipboardData.files));
    element.addEventListener("dragover", (event) => event.preventDefault());
    element.addEventListener("drop", (event) => {
      event.preventDefault();
      this.#take(event.dataTransfer.files);
    });
  }

  #take(files) {
    for (const file of files) {
      const sum = this.#files.reduce((bytes, each) => bytes + each.size, file.size);
      if (sum > MOST_BYTES) this.refuse(`${file.name} does not fit: attachments may have ${number(MOST_BYTES / 1000)} kB together.`);
      else this.#files.push(file);
    }
    this.input.value = "";
    this.#draw();
    announce(`${plural(this.#files.length, "attachment")}`);
  }

  #draw() {
    fill(this.list, this.#files.map((file) => h("li", {}, h("bdi", {}, file.name), ` ${number(Math.ceil(file.size / 1000))} kB `,
      button("×", () => {
        this.#files = this.#files.filter((each) => each !== file);
        this.#draw();
      }, { class: "small", "aria-label": `Remove ${file.name}` }))));
  }

  clear() {
    this.#files = [];
    this.#draw();
  }

  // The parts of a message that the files are.
  async parts() {
    return Promise.all(this.#files.map(async (file) => ({
      type: typeOf(file),
      data: base64(new Uint8Array(await file.arrayBuffer())),
      media_type: file.type || "application/octet-stream",
      name: typeOf(file) === "file" ? file.name : "",
    })));
  }
}
