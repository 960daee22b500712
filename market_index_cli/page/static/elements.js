// Creates and updates the elements of the page. Names and other data are inserted only as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element with attributes and children, which are elements or texts. */
export function element(name, attributes = {}, ...children) {
  return build(document.createElement(name), attributes, children);
}

/** Return the element of the book's view that a selector finds. */
export function part(selector) {
  return document.querySelector(`#book ${selector}`);
}

/** Return a copy of the element in a template. */
export function copyOf(id) {
  return document.getElementById(id).content.firstElementChild.cloneNode(true);
}

/** Return an SVG element. */
export function svgElement(name, attributes = {}, ...children) {
  return build(document.createElementNS(SVG, name), attributes, children);
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Set the text of an element. Equal text is not set again: that would clear a selection and announce it again. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Replace the content of an element by nodes and texts. Equal content is not replaced: that would clear a selection. */
export function replaceParts(node, parts) {
  if (node.textContent !== parts.map((part) => part.textContent ?? part).join("")) node.replaceChildren(...parts);
}

/** Replace the children of an element. A child that remains is not removed in between, so it keeps the focus. */
export function setChildren(node, children) {
  const wanted = new Set(children);
  for (const child of [...node.children]) if (!wanted.has(child)) child.remove();
  let next = node.firstElementChild;
  for (const child of children) {
    if (child === next) next = next.nextElementSibling;
    else node.insertBefore(child, next);
  }
}

/** Return the elements of a pair's name. Each asset is isolated, so that neither changes the direction of the other. */
export function pairName(base, quote) {
  return [element("bdi", {}, base), element("span", { class: "slash" }, "/"), element("bdi", {}, quote)];
}
