// The style of an object beside its list.

import { loadStyle } from "./ui.js";

const STYLE = "./object.css";

// Settles when it is there.
export const styled = loadStyle(STYLE);
