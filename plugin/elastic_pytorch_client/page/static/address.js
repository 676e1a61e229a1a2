// The address after its `#`: which view is shown, and how.

/** The parts of the path, and the parameters after its `?`. */
export function readAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").map(decode), parameters: new URLSearchParams(query) };
}

export function parameter(name) {
  return readAddress().parameters.get(name) ?? "";
}

/** Sets a parameter without a new entry in the history; an empty text removes it. */
export function setParameter(name, text) {
  const { parameters } = readAddress(), [path] = location.hash.split("?");
  if (text) parameters.set(name, text);
  else parameters.delete(name);
  history.replaceState(null, "", `${path || "#/"}${parameters.size ? `?${parameters}` : ""}`);
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return "";
  }
}
