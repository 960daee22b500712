// What the visitor has chosen, kept by the browser for the next visit. A browser may forbid that: then it is forgotten.

const PREFIX = "market-index.";

/** Return a choice: a text, empty if there is none. */
export function setting(name) {
  try {
    return localStorage.getItem(PREFIX + name) ?? "";
  } catch {
    return "";
  }
}

/** Keep a choice. */
export function keepSetting(name, value) {
  try {
    localStorage.setItem(PREFIX + name, value);
  } catch {
    // It holds until the page is closed.
  }
}
