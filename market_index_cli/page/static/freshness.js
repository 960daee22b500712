// How fresh the books are: the ages that /healthz reports, which increase between two responses.
//
// Times are milliseconds of the page's monotonic clock (performance.now), and durations are measured by the service. No
// wall clock is used, which may jump or be wrong. The time of a request counts as age, so an age is never too low.

// The status is requested every five seconds, or later if the service is slow.
const MAX_AGE_MILLISECONDS = 30_000;
const MAX_QUIET_MILLISECONDS = 60_000;
const UNITS = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];

const OUT_OF_DATE = "The data shown may be out of date.";

/** The states of the page: name, label, and the warning that is shown above the content. */
export const State = Object.freeze({
  CONNECTING: ["connecting", "Connecting…", ""],
  LOST: ["lost", "No answer", ""],
  LIVE: ["live", "Live", ""],
  QUIET: ["quiet", "Quiet", `The publisher is not publishing. ${OUT_OF_DATE}`],
  STALE: ["stale", "Stale", `The service cannot follow its feed. ${OUT_OF_DATE}`],
  UNTRACKED: ["untracked", "Not tracked", ""],
  UNKNOWN: ["unknown", "Age not known", ""],
});

/** The last report of the service, and the state that follows from it. */
export class Freshness {
  #report = null;
  #requestedAt = 0;
  #watchedSince = null;
  #publishedAt = -Infinity;

  /** Store a response of /healthz (null without one), with the times of the request and of its arrival. */
  take(response, requestedAt, arrivedAt) {
    this.#report = parse(response);
    this.#requestedAt = requestedAt;
    if (this.#report === null) return;
    this.#watchedSince ??= arrivedAt;
    // The report may be older than the last version of the stream.
    if (this.#publishedAt > requestedAt) this.published(this.#publishedAt);
  }

  /** Store that a version was published just now: the stream reports it sooner. */
  published(now) {
    this.#publishedAt = now;
    if (this.#report === null) return;
    // In terms of the report, whose ages are those at its request.
    const since = this.#requestedAt - now;
    Object.assign(this.#report, { age: since, quiet: since });
  }

  /** What the service reflected at the last report; null if it is not known. */
  get asOf() {
    return this.#report?.asOf ?? null;
  }

  /** Forget everything: a restarted service has loaded its feed again. */
  forget() {
    this.#report = this.#watchedSince = null;
  }

  /** Return the state at a time, and the reason for it. `isTracked` is false for a book that is not live any more. */
  at(now, isTracked) {
    const report = this.#report;
    if (report === null) return [State.UNKNOWN, "the service does not report it"];
    const elapsed = now - this.#requestedAt;
    const [age, quiet] = [report.age + elapsed, report.quiet + elapsed];
    if (report.quiet === null) return [State.QUIET, "nothing was published yet"];
    if (report.age === null) return [State.STALE, report.error];
    if (age > MAX_AGE_MILLISECONDS) return [State.STALE, `for ${duration(age)}: ${report.problem ?? "unreachable"}`];
    if (!report.isHealthy && report.problem !== null) return [State.STALE, report.error];
    if (quiet > report.maxQuiet) return [State.QUIET, `no publication for ${duration(quiet)}`];
    if (!report.isHealthy) return [State.STALE, report.error];
    // Loaded books without a publish time may have any age, until a publication arrives.
    const isAgeKnown = report.hasPublishTime || this.#requestedAt - report.quiet > this.#watchedSince;
    if (!isAgeKnown) return [State.UNKNOWN, "the source has no times, and nothing was published since this page was opened"];
    if (isTracked === false) return [State.UNTRACKED, ""];
    return [State.LIVE, `last publication ${duration(quiet)} ago`];
  }
}

/** Return a duration in the largest unit of which it has at least one (two for days), rounded down; never below 0 s. */
export function duration(milliseconds) {
  const seconds = Math.max(Math.floor(milliseconds / 1000), 0);
  const [name, length] = UNITS.find(([unit, length]) => seconds >= length * (unit === "d" ? 2 : 1)) ?? UNITS.at(-1);
  return `${Math.floor(seconds / length)} ${name}`;
}

/** Return the report in a response, in milliseconds; null if the response is not valid. */
function parse(response) {
  const { quiet_seconds: quiet, age_seconds: age, max_quiet_seconds: maxQuiet } = response ?? {};
  if (![age, quiet].every((seconds) => seconds === null || typeof seconds === "number")) return null;
  return {
    age: age === null ? null : age * 1000,
    quiet: quiet === null ? null : quiet * 1000,
    maxQuiet: typeof maxQuiet === "number" ? maxQuiet * 1000 : MAX_QUIET_MILLISECONDS,
    problem: response.problem ?? null,
    asOf: response.as_of ?? null,
    hasPublishTime: typeof response.published_at === "string",
    isHealthy: response.error === undefined,
    error: String(response.error ?? ""),
  };
}
