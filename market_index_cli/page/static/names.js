// What an asset is called. Names are bytes that whoever mints a token chooses: they tell nothing of which asset it is.

const IDENTIFIER = /^(?:ADA|[0-9a-f]{56}:(?:[0-9a-f]{2}){0,32})$/;
const UTF_8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
// Control, format, surrogate, private use and unassigned, and every separator but the space.
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;
const LABEL_DIGITS = 8;
const SHORTENED = 18;

/** Return an identifier in its canonical text, or null where it is none. */
export function identifier(text) {
  const canonical = text === "ADA" ? text : (text ?? "").toLowerCase();
  return IDENTIFIER.test(canonical) ? canonical : null;
}

/** Return what people call an asset: its name where that is text that can be shown, else its identifier, cut. */
export function ticker(id) {
  if (id === "ADA") return id;
  const [, digits = ""] = id.split(":");
  const label = nameLabel(digits);
  const text = nameText(label === null ? digits : digits.slice(LABEL_DIGITS));
  if (!text || text.trim() !== text) return shortened(id);
  return label === null ? text : `(${label})${text}`;
}

/** Return the beginning of an asset's policy id, which tells it from others of its name; of ADA, nothing. */
export function policy(id) {
  return id === "ADA" ? "" : `${id.slice(0, 8)}…`;
}

/** Return the label that an asset name begins with, as CIP-67 has it, or null. */
export function nameLabel(digits) {
  const match = /^0([0-9a-f]{4})([0-9a-f]{2})0/.exec(digits);
  return match && crc8(octets(match[1])) === parseInt(match[2], 16) ? parseInt(match[1], 16) : null;
}

/** Return the text of an asset name without its label; null where it is not UTF-8, or has what cannot be printed. */
export function nameText(digits) {
  try {
    const text = UTF_8.decode(octets(digits));
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

function octets(digits) {
  return Uint8Array.from(digits.match(/../g) ?? [], (octet) => parseInt(octet, 16));
}

function crc8(bytes) {
  let remainder = 0;
  for (const byte of bytes) {
    remainder ^= byte;
    for (let bit = 0; bit < 8; bit += 1) remainder = ((remainder << 1) ^ (remainder & 0x80 ? 0x07 : 0)) & 0xff;
  }
  return remainder;
}
