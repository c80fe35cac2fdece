// What a name says of its content: an icon, and words.

const KINDS = {
  fileText: { txt: "Text", log: "Text, log", md: "Markdown", rst: "reStructuredText", doc: "Document", docx: "Document", odt: "Document", eml: "E-mail" },
  fileSheet: { csv: "CSV", tsv: "TSV", xls: "Spreadsheet", xlsx: "Spreadsheet", ods: "Spreadsheet" },
  filePdf: { pdf: "PDF" },
  fileCode: {
    json: "JSON", xml: "XML", yaml: "YAML", yml: "YAML", toml: "TOML", html: "HTML", css: "CSS", js: "JavaScript", ts: "TypeScript",
    py: "Python", go: "Go", rs: "Rust", java: "Java", c: "C", h: "C", cpp: "C++", sh: "Shell", sql: "SQL", proto: "Protocol buffers",
  },
  fileArchive: {
    zip: "Archive, zip", gz: "Archive, gzip", tgz: "Archive, gzip", zst: "Archive, zstd", xz: "Archive, xz", bz2: "Archive, bzip2",
    tar: "Archive, tar", "7z": "Archive, 7z", rar: "Archive, rar", jar: "Archive, jar",
  },
  fileImage: { png: "Image, PNG", jpg: "Image, JPEG", jpeg: "Image, JPEG", gif: "Image, GIF", svg: "Image, SVG", webp: "Image, WebP", tif: "Image, TIFF", ico: "Image, icon" },
  fileVideo: { mp4: "Video, MP4", mov: "Video", webm: "Video, WebM", mkv: "Video", avi: "Video" },
  fileAudio: { mp3: "Audio, MP3", wav: "Audio, WAV", m4a: "Audio, M4A", ogg: "Audio, Ogg", flac: "Audio, FLAC" },
  fileData: { parquet: "Parquet", db: "Database", sqlite: "SQLite", avro: "Avro", orc: "ORC", arrow: "Arrow" },
};

const OF = new Map(
  Object.entries(KINDS).flatMap(([icon, names]) => Object.entries(names).map(([ending, text]) => [ending, [icon, text]])));

// [icon, words] of a name; without words for an ending that says nothing.
export function typeOf(name) {
  const dot = name.lastIndexOf(".");
  return (dot > 0 && OF.get(name.slice(dot + 1).toLowerCase())) || ["file", ""];
}
