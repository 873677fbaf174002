// Addresses: "#/runs/ID?tab=log" is path ["runs", "ID"] and a query.

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // not what address() wrote
  }
}

export function address(path, query = {}) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  const written = `#/${path.map(encodeURIComponent).join("/")}`;
  return search.size ? `${written}?${search}` : written;
}

export function go(path, query) {
  window.location.hash = address(path, query);
}

// Changes the query without a step in the history and without showing the view anew.
export function note(path, query) {
  window.history.replaceState(null, "", address(path, query));
}
