// The uploads as a component sees them.

import { useEffect, useState } from "preact/hooks";
import { uploads } from "./upload.js";

const percents = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 0 });

export const percent = (part, whole) => percents.format(whole ? Math.floor((part / whole) * 100) / 100 : 1);

// Draw again with each change of the uploads.
export function useUploads() {
  const [, redraw] = useState(0);
  useEffect(() => uploads.watch(() => redraw((round) => round + 1)), []);
  return uploads;
}
