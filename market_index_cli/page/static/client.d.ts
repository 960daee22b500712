/** Types of client.js. */

/** A price is a decimal in a text. The amount is in smallest units of the base asset, at exactly this price. */
export interface PriceLevel {
  readonly price: string;
  readonly accumulated_liquidity: bigint;
}

export interface OrderBook {
  readonly base: string;
  readonly quote: string;
  readonly spot: string | null;
  /** The highest price first. */
  readonly bids: readonly PriceLevel[];
  /** The lowest price first. */
  readonly asks: readonly PriceLevel[];
}

export interface PairInfo {
  readonly base: string;
  readonly quote: string;
  readonly last_spot: string | null;
}

/** A pair in the list of `serve`, with its best prices. What is missing is null. */
export interface PairSummary {
  readonly base: string;
  readonly quote: string;
  readonly spot: string | null;
  readonly best_bid: string | null;
  readonly best_ask: string | null;
  readonly spread: string | null;
  /** The numbers of levels. */
  readonly bids: number;
  readonly asks: number;
  /** The lovelace of both sides within 2 % of the midpoint, an integer in a text. */
  readonly liquidity: string | null;
}

/** An asset as `serve` names it. The minter has chosen the name, unless it is that of a token registry. */
export interface Token {
  readonly id: string;
  readonly name: string;
  /** Digits to show beside the name; empty if no other tracked asset has it. */
  readonly policy: string;
  /** Null if they are not known. */
  readonly decimals: number | null;
  readonly names: readonly string[];
  readonly fingerprint: string | null;
}

/** What the service had at one moment. */
export interface Version {
  /** The books by BASE/QUOTE. It changes only before the next call of `onVersion`. */
  readonly books: ReadonlyMap<string, OrderBook>;
  /** The pairs that this version replaced or removed. */
  readonly changed: readonly string[];
  /** Whether it is the first version of a connection. */
  readonly isFirst: boolean;
  readonly asOf: string | null;
  readonly publishedAt: string | null;
}

export interface FollowOptions {
  onVersion(version: Version): void;
  /** The stream is lost, and is opened again after a time in milliseconds; null: it is open, but has sent no version. */
  onSilence?: ((reason: ServiceError, milliseconds: number | null) => void) | undefined;
  signal?: AbortSignal | undefined;
}

export interface RequestOptions {
  signal?: AbortSignal | undefined;
}

export interface ClientOptions {
  /** Milliseconds of silence after which a stream is lost: 5000. */
  silence?: number;
  /** Timeout of a request in milliseconds: 10000. */
  timeout?: number;
  /** The longest time between two streams in milliseconds: 30000. */
  maxBackoff?: number;
  /** How many responses are cached: 100. */
  cached?: number;
}

export class ServiceError extends Error {
  constructor(message: string, status?: number | null);
  /** The status of the response; null without one. */
  readonly status: number | null;
}

export class Client {
  constructor(base: string | URL, options?: ClientOptions);
  pairList(options?: RequestOptions): Promise<readonly PairInfo[]>;
  summary(options?: RequestOptions): Promise<readonly PairSummary[]>;
  tokens(options?: RequestOptions): Promise<ReadonlyMap<string, Token>>;
  orderBook(base: string, quote: string, options?: RequestOptions): Promise<OrderBook | null>;
  get(path: string, options?: RequestOptions & { expected?: readonly number[] }): Promise<unknown>;
  follow(pairs: readonly string[], options: FollowOptions): Promise<void>;
}

export function parse(text: string): unknown;
export function shifted(number: string | bigint, places: number): string;
export function comparePrices(one: string, other: string): number;
export function withChange(book: OrderBook, change: Pick<OrderBook, "spot" | "bids" | "asks">): OrderBook;
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void>;
