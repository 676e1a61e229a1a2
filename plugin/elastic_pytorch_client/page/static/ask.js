// Questions to the server.

export const LOST = "`kubectl epj ui` does not answer. Start it again, and open the address that it prints.";

/** What the server says to a question; an error in words where it refuses. */
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

/** Asks again and again while the page is looked at, one question at a time. */
export class Reader {
  /** @param path of the question. @param take is called with each answer. @param wanted says whether to ask again by itself. */
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

  /** Asks at once, or after the answer that is awaited. */
  async read(path = this.path) {
    this.path = path;
    this.again = this.reading;
    if (this.reading) return;
    this.reading = true;
    const data = await ask(path);
    this.reading = false;
    if (this.stopped) return;
    if (path === this.path && data.error !== LOST) this.take(data); // the top of the page says that the server does not answer
    if (this.again) this.read();
  }
}
