// Display names of assets: those of a token registry, or of the tokens themselves. The minter of a token chooses its name,
// so a name does not identify an asset.

const IDENTIFIER = /^(?:ADA|[0-9a-f]{56}:(?:[0-9a-f]{2}){0,32})$/;
const UTF_8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
// Control, format, surrogate, private-use and unassigned characters, every separator except the space, and what is shown as
// nothing: invisible characters, and two blank symbols.
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800\u{1D159}]|(?! )\p{Zs}/u;
const LABEL_DIGITS = 8;
const POLICY_DIGITS = 8;
const SHORTENED = 18;
const ADA_DECIMALS = 6;

/**
 * Labels and decimals of a token registry, by asset. `entries` has for each identifier a label, decimals or null, and the
 * texts by which it is found: its ticker and its name.
 */
export class Tokens {
  #entries;
  #taken;

  constructor(entries = {}) {
    this.#entries = new Map(Object.entries(entries));
    this.#taken = new Set(Object.values(entries).map(([label]) => label));
  }

  /** Whether there is no registry: assets are shown by their own names, and numbers in smallest units. */
  get isEmpty() {
    return this.#entries.size === 0;
  }

  /**
   * Return the name of an asset, and what is shown beside it, because names are not unique: the label of its entry, else
   * the own name and the start of the policy id. The minter can choose both, so what would look like the label of
   * another asset has the whole identifier beside it.
   */
  nameParts(id) {
    const [label] = this.#entries.get(id) ?? [null];
    if (label === null) {
      const name = ticker(id);
      const isImitation = this.#taken.has(`${name.replace(/ +/g, " ")} ${id.slice(0, POLICY_DIGITS)}`);
      return [name, isImitation ? id : policy(id)];
    }
    const end = label.lastIndexOf(" ");
    return end < 0 ? [label, ""] : [label.slice(0, end), label.slice(end + 1)];
  }

  /** Return the name of an asset in one text: with what is beside it, if there is a registry. */
  nameOf(id) {
    const [name, beside] = this.nameParts(id);
    return this.isEmpty || beside === "" ? name : `${name} ${beside}`;
  }

  /** Return the number of decimals of an asset; null if it is not known. */
  decimals(id) {
    return id === "ADA" ? ADA_DECIMALS : (this.#entries.get(id)?.[1] ?? null);
  }

  /** Return the other texts by which an asset is found. */
  others(id) {
    return this.#entries.get(id)?.[2] ?? [];
  }
}

/** Return the canonical text of an asset identifier; null if the text is not one. */
export function identifier(text) {
  const canonical = text === "ADA" ? text : (text ?? "").toLowerCase();
  return IDENTIFIER.test(canonical) ? canonical : null;
}

/** Return the ticker of an asset: its name if that is printable text, otherwise its shortened identifier. */
export function ticker(id) {
  if (id === "ADA") return id;
  const [, digits = ""] = id.split(":");
  const label = nameLabel(digits);
  const text = nameText(label === null ? digits : digits.slice(LABEL_DIGITS));
  if (!text || text.trim() !== text) return shortened(id);
  return label === null ? text : `(${label})${text}`;
}

/** Return the start of an asset's policy id, to tell apart assets with equal names; empty for ADA. */
function policy(id) {
  return id === "ADA" ? "" : `${id.slice(0, POLICY_DIGITS)}…`;
}

/** Return the CIP-67 label at the start of an asset name; null if there is none. */
export function nameLabel(digits) {
  const match = /^0([0-9a-f]{4})([0-9a-f]{2})0/.exec(digits);
  return match && crc8(bytesOf(match[1])) === parseInt(match[2], 16) ? parseInt(match[1], 16) : null;
}

/** Return an asset name without its label as text; null if it is not UTF-8, or has a character that is not shown. */
export function nameText(digits) {
  try {
    const text = UTF_8.decode(bytesOf(digits));
    return UNPRINTABLE.test(text) ? null : text;
  } catch {
    return null;
  }
}

function shortened(id) {
  if (id.length <= SHORTENED) return id;
  const [policyId, name = ""] = id.split(":");
  const room = SHORTENED - "00000000…:".length;
  return `${policyId.slice(0, 8)}…:${name.length <= room ? name : `${name.slice(0, room - 1)}…`}`;
}

function bytesOf(digits) {
  return Uint8Array.from(digits.match(/../g) ?? [], (digitPair) => parseInt(digitPair, 16));
}

function crc8(bytes) {
  let remainder = 0;
  for (const byte of bytes) {
    remainder ^= byte;
    for (let bit = 0; bit < 8; bit += 1) remainder = ((remainder << 1) ^ (remainder & 0x80 ? 0x07 : 0)) & 0xff;
  }
  return remainder;
}
