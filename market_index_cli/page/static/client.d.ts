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
  /** The stream is lost, and is opened again after a time in milliseconds. */
  onSilence?: ((reason: ServiceError, milliseconds: number) => void) | undefined;
  signal?: AbortSignal | undefined;
}

export interface RequestOptions {
  signal?: AbortSignal | undefined;
}

export class ServiceError extends Error {
  constructor(message: string, status?: number | null);
  /** The status of the response; null without one. */
  readonly status: number | null;
}

export class Client {
  constructor(base: string | URL);
  pairList(options?: RequestOptions): Promise<readonly PairInfo[]>;
  orderBook(base: string, quote: string, options?: RequestOptions): Promise<OrderBook | null>;
  get(path: string, options?: RequestOptions & { expected?: readonly number[] }): Promise<unknown>;
  follow(pairs: readonly string[], options: FollowOptions): Promise<void>;
}

export function parse(text: string): unknown;
export function comparePrices(one: string, other: string): number;
export function withChange(book: OrderBook, change: Pick<OrderBook, "spot" | "bids" | "asks">): OrderBook;
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void>;
