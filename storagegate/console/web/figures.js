// The style of figures, settings and the live view.

import { loadStyle } from "./ui.js";

const STYLE = "./figures.css";

// Settles when it is there; a page that exports it is shown after that.
export const styled = loadStyle(STYLE);
