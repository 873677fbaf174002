// Files beside a message: chosen, dropped or pasted; they are uploaded, or travel in the message
// itself where the server keeps no uploads.

import { send } from "./api.js";
import { button, fill, h } from "./html.js";
import { announce } from "./state.js";
import { number, plural } from "./text.js";

const MOST_BYTES = 700000; // the body of a request is at most 1 MiB, and base64 takes a third more
const MOST_UPLOADED_BYTES = 32 * 1024 * 1024;

const base64 = (bytes) => {
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return window.btoa(letters);
};

const typeOf = (file) => (file.type.startsWith("image/") ? "image" : file.type.startsWith("audio/") ? "audio" : "file");

export class Attachments {
  #files = [];

  constructor(refuse, uploads) {
    this.refuse = refuse;
    this.uploads = uploads;
    this.most = uploads ? MOST_UPLOADED_BYTES : MOST_BYTES;
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
      if (sum > this.most) this.refuse(`${file.name} does not fit: attachments may have ${number(Math.floor(this.most / 1000))} kB together.`);
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

  get empty() {
    return this.#files.length === 0;
  }

  clear() {
    this.#files = [];
    this.#draw();
  }

  // The parts of a message that the files are.
  async parts() {
    return Promise.all(this.#files.map(async (file) => ({
      type: typeOf(file),
      ...(await this.#content(file)),
      name: typeOf(file) === "file" ? file.name : "",
    })));
  }

  async #content(file) {
    const type = file.type || "application/octet-stream";
    if (!this.uploads) return { data: base64(new Uint8Array(await file.arrayBuffer())), media_type: type };
    const response = await send("blobs", { method: "POST", body: file, headers: { "Content-Type": type } });
    const { digest, media_type: kept } = await response.json();
    return { upload: { digest, media_type: kept } };
  }
}
