// Names of assets, which the service chooses. The minter of a token chooses its own name, so a name does not identify it.

const IDENTIFIER = /^(?:ADA|[0-9a-f]{56}:(?:[0-9a-f]{2}){0,32})$/;

/** The names and decimals of the assets of the tracked pairs. */
export class Tokens {
  #assets;

  /** The content of tokens.json: each asset has a name, what is shown beside it, decimals or null, and other texts. */
  constructor({ hasRegistry = false, assets = {} } = {}) {
    /** Whether there is no registry: numbers are shown in smallest units. */
    this.isEmpty = !hasRegistry;
    this.#assets = new Map(Object.entries(assets));
  }

  has(id) {
    return this.#assets.has(id);
  }

  /** Return the name of an asset, and what is shown beside it, because names are not unique. */
  nameParts(id) {
    return this.#assets.get(id)?.slice(0, 2) ?? [id.length > 18 ? `${id.slice(0, 8)}…` : id, ""];
  }

  /** Return the name of an asset in one text: with what is beside it, if there is a registry. */
  nameOf(id) {
    const [name, beside] = this.nameParts(id);
    return this.isEmpty || beside === "" ? name : `${name} ${beside}`;
  }

  /** Return the number of decimals of an asset; null if it is not known. */
  decimals(id) {
    return this.#assets.get(id)?.[2] ?? (id === "ADA" ? 6 : null);
  }

  /** Return the other texts by which an asset is found. */
  others(id) {
    return this.#assets.get(id)?.[3] ?? [];
  }
}

/** Return the canonical text of an asset identifier; null if the text is not one. */
export function identifier(text) {
  const canonical = text === "ADA" ? text : (text ?? "").toLowerCase();
  return IDENTIFIER.test(canonical) ? canonical : null;
}
