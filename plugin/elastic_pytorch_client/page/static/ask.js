export const LOST =
  "`kubectl epj ui` does not answer. Start it again, and open the address that it prints.";

/** The server's answer, or its refusal in words. */
export async function ask(path) {
  let answer;
  try {
    answer = await fetch(path);
  } catch {
    return { error: LOST };
  }
  try {
    return await answer.json();
  } catch {
    return { error: `the answer has the status ${answer.status}` };
  }
}

/** Asks repeatedly while the page is visible, one question at a time. */
export class Reader {
  /** @param take is called with each answer. @param wanted says whether to ask again. */
  constructor(path, refreshMs, take, wanted = () => true) {
    this.path = path;
    this.take = take;
    this.timer = setInterval(() => !document.hidden && wanted() && this.read(), refreshMs);
  }

  stop() {
    this.stopped = true;
    clearInterval(this.timer);
    clearTimeout(this.waiting);
  }

  /** Asks once for many changes. */
  soon() {
    this.waiting ??= setTimeout(() => {
      this.waiting = undefined;
      this.read();
    }, 500);
  }

  /** Asks now, or after the awaited answer. */
  async read(path = this.path) {
    this.path = path;
    this.again = this.reading;
    if (this.reading) return;
    this.reading = true;
    const data = await ask(path);
    this.reading = false;
    if (this.stopped) return;
    if (path === this.path && data.error !== LOST) this.take(data); // the page's top says so
    if (this.again) this.read();
  }
}
