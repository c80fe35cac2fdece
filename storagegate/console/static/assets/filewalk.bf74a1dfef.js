// The files of a drop or a choice, one after the other: {file, path}. A folder is read as far as it is needed.

const readSome = (reader) => new Promise((done, failed) => reader.readEntries(done, failed));

const fileOf = (entry) => new Promise((done, failed) => entry.file(done, failed));

async function* walk(entry, path) {
  if (entry.isFile) {
    try {
      yield { file: await fileOf(entry), path };
    } catch (error) {
      yield { path, error };
    }
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    let some;
    try {
      some = await readSome(reader);
    } catch (error) {
      yield { path, error };
      return;
    }
    if (!some.length) return;
    for (const each of some) yield* walk(each, path + "/" + each.name);
  }
}

// A source: `files()` begins to walk from the start. Must be made while the event is handled.
export function fromDrop(transfer) {
  const entries = [...transfer.items]
    .filter((item) => item.kind === "file")
    .map((item) => (item.webkitGetAsEntry ? item.webkitGetAsEntry() : null) || item.getAsFile())
    .filter((each) => each);
  return {
    async *files() {
      for (const each of entries)
        if (each instanceof File) yield { file: each, path: each.name };
        else yield* walk(each, each.name);
    },
  };
}

export function fromChoice(list) {
  // The input is emptied, so that the same choice is one again.
  const files = Array.from(list);
  return {
    async *files() {
      for (const file of files) yield { file, path: file.webkitRelativePath || file.name };
    },
  };
}
