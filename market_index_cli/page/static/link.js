// The form of a link: the fragment of the page's address names the selected pair, and the step of its prices.

const IDENTIFIER = /^(?:ADA|[0-9a-f]{56}:(?:[0-9a-f]{2}){0,32})$/;

/**
 * Return what a fragment selects. `pair` is null for the list, and has no `key` if it is not valid. `step` is 1, 2 or 5 ×
 * 10^n as a text, or empty for the default.
 */
export function readLink(hash) {
  const fields = new URLSearchParams(hash.slice(1));
  const [base, quote] = [fields.get("base"), fields.get("quote")].map(identifier);
  const step = fields.get("step") ?? "";
  const isStep = /^[\d.]{1,64}$/.test(step) && /^0*[125]0*$/.test(step.replace(".", ""));
  const key = base && quote && `${base}/${quote}`;
  return { pair: hash.length < 2 ? null : { base, quote, key }, step: isStep ? step : "" };
}

/** Return the fragment that selects a pair, and the step of its prices. */
export function linkTo({ base, quote }, step = "") {
  return `#base=${base}&quote=${quote}${step && `&step=${step}`}`;
}

/** Return the canonical text of an asset identifier; null if the text is not one. */
function identifier(text) {
  const canonical = text === "ADA" ? text : (text ?? "").toLowerCase();
  return IDENTIFIER.test(canonical) ? canonical : null;
}
