// How fresh the books are: what /healthz reports of the feed, counted on by the clock of the page between two answers.
//
// Times are milliseconds of the monotonic clock of the page (performance.now), durations are those of the service: no
// wall clock, which may jump or be wrong. Where it is in doubt, an age counts as longer than it is.

const MAX_AGE = 15_000;
const MAX_QUIET = 60_000;
const UNITS = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];

/** The states of the page. `warning` says what a reader should know of the content that is shown. */
export const State = Object.freeze({
  CONNECTING: { name: "connecting", label: "Connecting…", warning: "" },
  LOST: { name: "lost", label: "No answer", warning: "" },
  LIVE: { name: "live", label: "Live", warning: "" },
  QUIET: {
    name: "quiet",
    label: "Quiet",
    warning: "The publisher publishes nothing at present: what is shown may be old.",
  },
  STALE: {
    name: "stale",
    label: "Stale",
    warning: "The service cannot read its feed at present: what is shown may be old.",
  },
  UNKNOWN: { name: "unknown", label: "Freshness not known", warning: "" },
});

/** The last report of the service. */
export class Freshness {
  #report = null;
  #askedAt = 0;
  #watchedSince = null;

  /** Take over an answer of /healthz, null if there is none, that was asked for and arrived at these times. */
  take(answer, askedAt, arrivedAt) {
    this.#report = readable(answer);
    this.#askedAt = askedAt;
    if (this.#report !== null) this.#watchedSince ??= arrivedAt;
  }

  /** Forget everything: the service may be another when it answers again. */
  forget() {
    this.#report = this.#watchedSince = null;
  }

  /** Return the state at a time, and the sentence that gives the reason. */
  at(now) {
    const report = this.#report;
    if (report === null) return [State.UNKNOWN, ""];
    const later = now - this.#askedAt;
    const [age, quiet] = [report.age + later, report.quiet + later];
    if (age > MAX_AGE) return [State.STALE, `feed unreachable for ${duration(age)}`];
    if (report.quiet === null) return [State.QUIET, "nothing was published yet"];
    if (quiet > report.maxQuiet) return [State.QUIET, `no publication for ${duration(quiet)}`];
    if (!report.isHealthy) return [State.STALE, report.error];
    // Without a publish time, what was loaded may be of any age: only a publication that arrived meanwhile is a proof.
    const isPublication = report.hasPublishTime || this.#askedAt - report.quiet > this.#watchedSince;
    return isPublication ? [State.LIVE, `last publication ${duration(quiet)} ago`] : [State.UNKNOWN, ""];
  }
}

/** Return a duration in whole units of the largest kind that it reaches, two for days; never less than 0 seconds. */
export function duration(milliseconds) {
  const seconds = Math.max(Math.floor(milliseconds / 1000), 0);
  const [name, length] = UNITS.find(([unit, length]) => seconds >= length * (unit === "d" ? 2 : 1)) ?? UNITS.at(-1);
  return `${Math.floor(seconds / length)} ${name}`;
}

/** Return what an answer reports, in milliseconds; null if it is none of /healthz. */
function readable(answer) {
  const { quiet_seconds: quiet, age_seconds: age, max_quiet_seconds: maxQuiet } = answer ?? {};
  if (typeof age !== "number" || (quiet !== null && typeof quiet !== "number")) return null;
  return {
    age: age * 1000,
    quiet: quiet === null ? null : quiet * 1000,
    maxQuiet: typeof maxQuiet === "number" ? maxQuiet * 1000 : MAX_QUIET,
    hasPublishTime: typeof answer.published_at === "string",
    isHealthy: answer.isHealthy,
    error: String(answer.error ?? ""),
  };
}
