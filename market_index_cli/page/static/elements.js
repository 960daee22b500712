// Elements of the page. Whatever was made up elsewhere gets in as text alone.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element with attributes, and with children: elements, or texts. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** Return an element of SVG. */
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Set an element's text, unless it is that already: a selection stays, and nothing is announced again. */
export function say(where, text) {
  if (where.textContent !== text) where.textContent = text;
}

/** Set an element's text, with places where the browser may break it after each comma. */
export function sayNumber(where, text) {
  if (where.textContent === text) return;
  const [first, ...others] = text.split(/(?<=,)/);
  where.replaceChildren(first, ...others.flatMap((part) => [element("wbr"), part]));
}

/** Make these the children of an element. Those that are already stay untouched, and keep the focus. */
export function place(where, children) {
  const wanted = new Set(children);
  for (const child of [...where.children]) if (!wanted.has(child)) child.remove();
  let next = where.firstElementChild;
  for (const child of children) {
    if (child === next) next = next.nextElementSibling;
    else where.insertBefore(child, next);
  }
}

/** Return the name of a pair, each of its assets by itself, so that no name can change how the other reads. */
export function pairName(base, quote) {
  return [element("bdi", {}, base), element("span", { class: "slash" }, "/"), element("bdi", {}, quote)];
}
