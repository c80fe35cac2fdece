export const LIBRARIES = [{"name": "preact", "version": "11.2.0", "license": "MIT"}, {"name": "htm", "version": "3.1.1", "license": "Apache-2.0"}, {"name": "uplot", "version": "1.6.32", "license": "MIT"}];
export const LICENCES = "./assets/licences.6af4966f84.txt";
