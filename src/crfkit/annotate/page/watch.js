// How long a question takes.

/** Counts the seconds during which the page could be seen. */
class Watch {
  constructor() {
    this.start();
    document.addEventListener("visibilitychange", () => {
      const now = performance.now();
      if (document.hidden) this.total += now - this.since;
      this.since = now;
    });
  }

  start() {
    this.total = 0;
    this.since = performance.now();
  }

  get seconds() {
    return (this.total + (document.hidden ? 0 : performance.now() - this.since)) / 1000;
  }
}

export const watch = new Watch();
