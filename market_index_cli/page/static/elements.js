// Creates and updates the elements of the page. Names and other data are inserted only as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element with attributes and children, which are elements or texts. */
export function element(name, attributes = {}, ...children) {
  return build(document.createElement(name), attributes, children);
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

/** Return the decimal places of a number as text, with the point; empty if it has none. */
export function decimalPlaces(text) {
  return /\..*|$/.exec(text)[0];
}

/** Return a button that copies a text. Without a clipboard, which only pages of a secure origin have, `select()` shows it. */
export function copyButton(name, label, copied, select) {
  const button = element("button", { type: "button", "aria-label": label }, name);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(copied());
      button.textContent = "Copied";
    } catch {
      button.textContent = select();
    }
    setTimeout(() => (button.textContent = name), 2000);
  });
  return button;
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
