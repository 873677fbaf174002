// The panel with the details of one span. All text is set as text, never as HTML.

const panel = byId("details");

function pair(list, name, value) {
  if (value === undefined || value === "") return;
  const cell = make("dd");
  if (value instanceof Node) cell.append(value);
  else appendMarked(cell, value);
  list.append(make("dt", "", name), cell);
}

function pairs(title, entries) {
  if (!entries.length) return;
  const list = make("dl");
  for (const [name, value] of entries) pair(list, name, value);
  panel.append(make("h3", "", title), list);
}

function block(title, text) {
  if (text === undefined) return;
  const content = make("pre");
  content.tabIndex = 0;
  content.setAttribute("aria-label", title);
  appendMarked(content, text);
  panel.append(make("h3", "", title), content);
}

function conversation(title, messages, otherwise) {
  if (!messages) {
    block(title, otherwise);
    return;
  }
  panel.append(make("h3", "", title));
  for (const { role, parts } of messages) {
    const message = make("section", `message ${role}`);
    message.append(make("div", "role", role));
    for (const [kind, heading, text] of parts) {
      if (heading) message.append(make("div", "part", heading));
      if (kind === "text" || kind === "thinking") {
        message.append(markdown(text));
      } else {
        const content = make("pre");
        appendMarked(content, text);
        message.append(content);
      }
    }
    panel.append(message);
  }
}

function jump(number) {
  const link = make("button", "link", `${spans[number].operation} ${spans[number].what}`);
  link.type = "button";
  link.addEventListener("click", () => select(number, { open: true }));
  return link;
}

const clock = (time) => new Date(trace.begun_ms + time / 1000).toISOString().replace("T", " ").replace("Z", " UTC");

function facts(span) {
  const list = make("dl");
  pair(list, "kind", span.kind);
  pair(list, "began", span.start ? `${label(span.start)} into the trace` : "with the trace");
  pair(list, "at", clock(span.start));
  pair(list, "took", span.took || (span.state === "open" ? "not over yet" : "no time"));
  pair(list, "tokens, cost", span.used);
  pair(list, "level", String(span.depth + 1));
  pair(list, "below", below[view.selected] ? below[view.selected].toLocaleString("en") : "");
  if (span.parent >= 0) pair(list, "under", jump(span.parent));
  pair(list, "run", span.run);
  pair(list, "tenant", span.tenant);
  pair(list, "user", span.user);
  pair(list, "span id", span.id);
  return list;
}

function drawDetails() {
  const span = spans[view.selected];
  const close = make("button", "close", "×");
  close.type = "button";
  close.setAttribute("aria-label", "Close the details");
  close.addEventListener("click", closeDetails);
  const title = make("h2", span.kind, "");
  appendMarked(title, `${span.operation} ${span.what}`.trim());
  const how = make("p", `how ${span.state}`, `${trace.marks[span.state]} ${span.state}${span.words ? `: ${span.words}` : ""}`);
  panel.replaceChildren(close, title, how, facts(span));
  pairs("Scores", span.scores || []);
  block("Error", span.error);
  conversation("Input", span.input_messages, span.input);
  conversation("Output", span.output_messages, span.output);
  pairs("Attributes", span.attributes);
  for (const event of span.events || []) {
    pairs(`Event at ${label(event.at)}`, [["name", event.name], ...event.attributes]);
  }
  if (!trace.content) {
    panel.append(make("p", "note", "Written without content; lib trace --html FILE --content includes it."));
  }
}

function openDetails() {
  panel.hidden = false;
  refresh();
}

function closeDetails() {
  panel.hidden = true;
  draw();
  grid.focus();
}
