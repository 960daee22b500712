// Names of assets, which the service chooses, and the units of the numbers of a pair.

import { product, shifted, whole } from "./exact.js";

/** The names and decimals of the assets of the tracked pairs: the content of /tokens. */
export class Tokens {
  #assets;

  constructor({ has_registry: hasRegistry = false, tokens = [] } = {}) {
    /** Whether the service has a token registry. Without one, numbers are in smallest units. */
    this.hasRegistry = hasRegistry;
    this.#assets = new Map(tokens.map((token) => [token.id, token]));
  }

  has(id) {
    return this.#assets.has(id);
  }

  /** Return the name of an asset, and the digits of its policy if another asset has the same name. */
  nameParts(id) {
    const { name, policy } = this.#assets.get(id) ?? { name: id.length > 18 ? `${id.slice(0, 8)}…` : id, policy: "" };
    return [name, policy];
  }

  nameOf(id) {
    return this.nameParts(id).filter(Boolean).join(" ");
  }

  /** Return the number of decimals of an asset; null if it is not known. */
  decimals(id) {
    return this.#assets.get(id)?.decimals ?? (id === "ADA" ? 6 : null);
  }

  /** Return the names by which an asset is found, and its identifiers. */
  texts(id) {
    const { name, names = [], fingerprint } = this.#assets.get(id) ?? { name: id };
    return [[name, ...names], [id, fingerprint ?? ""]];
  }
}

/** The units of the numbers of a pair: whole units with a registry, else smallest units as in the API. */
export class Units {
  /** An asset whose decimals are not known counts in smallest units. */
  constructor({ base, quote }, tokens) {
    const isWhole = tokens.hasRegistry;
    /** The decimals of a number of the base and of the quote. */
    [this.base, this.quote] = [base, quote].map((id) => (isWhole ? (tokens.decimals(id) ?? 0) : 0));
    /** The names of the units. */
    [this.baseName, this.quoteName] = [base, quote].map((id) => unitName(id, tokens, isWhole));
    const unknown = [base, quote].filter((id) => isWhole && tokens.decimals(id) === null);
    /** What must be said of the units: empty if all are whole. */
    this.remark = isWhole
      ? unknown.map((id) => `The decimals of ${isolated(tokens.nameOf(id))} are not known: its amounts are in smallest units.`).join(" ")
      : "All numbers are in smallest units, as in the API.";
  }

  /** Return a price in these units. */
  price(value) {
    return shifted(value, this.base - this.quote);
  }

  /** Return an integer amount of the base, or of the quote, in these units. */
  amount(amount, decimals = this.base) {
    return shifted(whole(amount), -decimals);
  }

  /** Return what a level is worth: the sum of its prices times their amounts, in units of the quote. */
  worth({ prices }) {
    return prices.reduce((sum, one) => sum + product(this.price(one.value), this.amount(one.amount)), 0n);
  }
}

/** Return the unit of the amounts of an asset: its name for whole units, or the name of its smallest unit. */
function unitName(id, tokens, isWhole) {
  if (isWhole && tokens.decimals(id) !== null) return isolated(tokens.nameOf(id));
  return id === "ADA" ? "lovelace" : `smallest units of ${isolated(tokens.nameOf(id))}`;
}

/** Return a name that does not change the direction of the text around it. */
function isolated(name) {
  return `\u2068${name}\u2069`;
}
