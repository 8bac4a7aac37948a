// Server-sent events, as far as the page's server uses them: a name, if any, and one line of data. No DOM.

// Call `heard(name, data)` for each event of a response's body, until its end, and `alive` for all that comes.
export async function readEvents(body, alive, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader(), take = eventReader(heard);
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    alive();
    take(part.value);
  }
}

// A function that takes a stream's text, cut anywhere. A last event that was cut off is none.
export function eventReader(heard) {
  let parts = [];          // of an event: the last frame of a race comes in a hundred pieces
  return (piece) => {
    let text = parts.at(-1)?.endsWith("\n") ? parts.pop() + piece : piece;
    for (let at = text.indexOf("\n\n"); at >= 0; at = text.indexOf("\n\n")) {
      const lines = [...parts, text.slice(0, at)].join("").split("\n");
      parts = [];
      text = text.slice(at + 2);
      const fields = new Map(lines.map((line) => line.split(/: (.*)/s)));
      if (fields.has("data")) heard(fields.get("event") ?? "", fields.get("data"));      // else a comment
    }
    parts.push(text);
  };
}
