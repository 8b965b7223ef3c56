// What came between two statuses: the server counts everything since its start.

/** The value below which `share` of what a histogram gained lies, or null when it gained nothing. */
export function quantile(before, after, share) {
  const counts = after.counts.map((count, i) => Number(count) - Number(before?.counts[i] ?? 0));
  const rank = share * counts.reduce((sum, count) => sum + count, 0);
  if (!rank) return null;
  let below = 0;
  let lower = 0;
  for (const [i, bound] of after.bounds.entries()) {
    if (counts[i] && below + counts[i] >= rank) return lower + ((bound - lower) * (rank - below)) / counts[i];
    below += counts[i];
    lower = bound;
  }
  return lower;
}

/** The last statuses, over `seconds` of the server's own time. */
export class Window {
  constructor(seconds) {
    this.seconds = seconds;
    this.statuses = [];
  }
  add(status) {
    const now = status.uptime_seconds;
    if (this.statuses.length && now < this.newest.uptime_seconds) this.statuses = []; // the server was started anew
    this.statuses.push(status);
    while (this.statuses.length > 2 && this.statuses[1].uptime_seconds <= now - this.seconds) this.statuses.shift();
  }
  get newest() {
    return this.statuses.at(-1);
  }
  /** The status about so many seconds before the newest. */
  before(seconds) {
    const at = this.newest.uptime_seconds - seconds;
    return this.statuses.findLast((each) => each.uptime_seconds <= at) ?? this.statuses[0];
  }
}
