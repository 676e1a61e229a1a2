// Questions to the server.

/** What the server says to a question; an error in words where it refuses. */
export async function ask(path) {
  let answer;
  try {
    answer = await fetch(path);
  } catch {
    return { error: "`kubectl epj ui` does not answer. Has it been ended?" };
  }
  try {
    return await answer.json();
  } catch {
    return { error: `the answer has the status ${answer.status}` };
  }
}
