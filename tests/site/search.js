// Runs the site's own search worker: node search.js WORKER INDEX <queries, as a JSON list on stdin.
// Prints, for each query, the locations of the pages that the panel shows, the best first.
"use strict";
const fs = require("fs");
const vm = require("vm");

const [worker, index] = process.argv.slice(2);
let receive;
let answered;
globalThis.self = globalThis;
globalThis.addEventListener = (name, listener) => { if (name === "message") receive = listener; };
globalThis.postMessage = (message) => answered(message);
vm.runInThisContext(fs.readFileSync(worker, "utf8"));

const ask = (type, data) => new Promise((resolve) => { answered = resolve; receive({data: {type, data}}); });

(async () => {
  const {config, docs} = JSON.parse(fs.readFileSync(index, "utf8"));
  await ask(0, {config, docs, options: {suggest: true}});
  const pages = [];
  for (const query of JSON.parse(fs.readFileSync(0, "utf8"))) {
    const {data} = await ask(2, query);
    pages.push(data.items.map((sections) => sections.find((section) => !section.location.includes("#"))?.location
      ?? sections[0].location.split("#")[0]));
  }
  console.log(JSON.stringify(pages));
})();
