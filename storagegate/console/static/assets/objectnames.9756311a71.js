// Names of objects: any text of UTF-8, which is shown as text whatever is in it.

import { say } from "./messages.5d7ca40ed1.js";

// Controls, marks of direction, and what has no width: written out, for they would hide or turn others.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

export const shown = (text) =>
  text.replace(UNSEEN, (each) => "\\u{" + each.charCodeAt(0).toString(16) + "}");

// The name without the folder that it is in.
export const shownBelow = (name, folder) => shown(name.slice(folder.length)) || say("objects.itself");

export const folderOf = (text) => text.slice(0, text.lastIndexOf("/") + 1);

// By UTF-8, as the store orders names: UTF-16 has those of two units before U+E000.
export function isBefore(one, other) {
  const length = Math.min(one.length, other.length);
  for (let at = 0; at < length; at += 1) {
    let a = one.charCodeAt(at);
    let b = other.charCodeAt(at);
    if (a === b) continue;
    if (a >= 0xd800 && b >= 0xd800) {
      a += a >= 0xe000 ? -0x800 : 0x2000;
      b += b >= 0xe000 ? -0x800 : 0x2000;
    }
    return a < b;
  }
  return one.length < other.length;
}

// A text that is less than a name, with next to nothing between both.
export function justBefore(name) {
  const points = Array.from(name);
  const last = points.pop().codePointAt(0);
  if (last === 0) return points.join("");
  const lower = last === 0xe000 ? 0xd7ff : last - 1;
  return points.join("") + String.fromCodePoint(lower) + "\u{10ffff}";
}
