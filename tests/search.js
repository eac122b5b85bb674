// Finds words in the built pages, with Sphinx's own code and without a browser:
//
//     node tests/search.js out/docs "GPU memory" latency
//
// Prints one JSON object: each query, and the pages found, the best first.
const fs = require("fs");
const vm = require("vm");

const [folder, ...queries] = process.argv.slice(2);
const files = ["_static/language_data.js", "_static/searchtools.js", "searchindex.js"];
const code = files.map((file) => fs.readFileSync(`${folder}/${file}`, "utf8"));

// What Sphinx's code reads of a browser.
globalThis.window = globalThis;
globalThis._ = (text) => text;
globalThis._ready = () => {};
globalThis.document = { getElementById: () => ({}) };
globalThis.SPHINX_HIGHLIGHT_ENABLED = false;
vm.runInThisContext([...code, "window.Search = Search;"].join("\n"));

const found = {};
for (const query of queries) {
  const results = Search._performSearch(...Search._parseQuery(query));
  // The last is the best. A page can appear several times, with its sections.
  found[query] = [...new Set(results.reverse().map(([page]) => page))];
}
console.log(JSON.stringify(found));
