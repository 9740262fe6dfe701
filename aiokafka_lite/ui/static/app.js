// The page. Everything that comes from the cluster is inserted as text: `element` never parses HTML.

const main = document.getElementById("main");
const PAGE_ROWS = 300; // rows of a table that are drawn at a time
let about = { writes: false, embedded: false };
let leave = () => {}; // ends what the present view has started
let present = 0; // the number of the present view: an earlier one, which is still loading, must not start anything

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined).map(textOrNode));
  return made;
}

const textOrNode = (child) => (child instanceof Node ? child : String(child));
const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));
const bytes = (value) => {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value.toFixed(unit ? 1 : 0)} ${units[unit]}`;
};
const time = (milliseconds) => {
  if (milliseconds < 0) return "–";
  if (milliseconds > 8.64e15) return `@${milliseconds}`; // no Date has it: the producer probably wrote nanoseconds
  return new Date(milliseconds).toISOString().replace("T", " ").replace("Z", "");
};
const part = encodeURIComponent;
const link = (view, name) => element("a", { href: `#/${view}/${part(name)}` }, name);

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  const answer = await fetch(`/api/${path}`, options);
  if (!answer.headers.get("content-type")?.startsWith("application/json")) throw new Error(await answer.text());
  const result = await answer.json();
  if (!answer.ok) throw new Error(result.error);
  return result;
}

// A table. `columns` are [heading, function of a row, class]. Long tables are drawn in pieces.
function table(columns, rows, attributes = {}) {
  const head = element("tr", {}, columns.map(([heading, , kind]) => element("th", { class: kind, scope: "col" }, heading)));
  const body = element("tbody");
  const more = element("button", { type: "button", hidden: true });
  let drawn = 0;
  const draw = () => {
    const piece = rows.slice(drawn, drawn + PAGE_ROWS);
    body.append(...piece.map((row) => element("tr", {}, columns.map(([heading, cell, kind]) => element("td", { class: kind, "data-label": heading }, cell(row))))));
    drawn += piece.length;
    more.hidden = drawn >= rows.length;
    more.textContent = `Show more (${number(rows.length - drawn)} left)`;
  };
  more.addEventListener("click", draw);
  draw();
  return element("div", { class: "scroll" }, element("table", attributes, element("thead", {}, head), body), more);
}

function chart(samples, small) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", small ? "small" : "chart");
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  const lags = samples.map(([, lag]) => lag);
  const [most, first] = [Math.max(1, ...lags), samples[0]?.[0] ?? 0];
  const span = Math.max(1, (samples.at(-1)?.[0] ?? 0) - first);
  svg.setAttribute("aria-label", samples.length ? `lag from ${lags[0]} to ${lags.at(-1)}, at most ${most}` : "no samples yet");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", samples.map(([at, lag]) => `${(100 * (at - first)) / span},${98 - (95 * lag) / most}`).join(" "));
  svg.append(line);
  return svg;
}

// Filters rows by a text while the user types. "/" moves the focus to the field.
function filtered(rows, columns, name, label) {
  const place = element("div");
  const field = element("input", { type: "search", "data-search": "", autocomplete: "off" });
  const draw = () => {
    const wanted = field.value.toLowerCase();
    const chosen = rows.filter((row) => row[name].toLowerCase().includes(wanted));
    place.replaceChildren(element("p", { class: "soft" }, `${number(chosen.length)} of ${number(rows.length)}`), table(columns, chosen));
  };
  field.addEventListener("input", draw);
  draw();
  return [element("form", { onsubmit: (event) => event.preventDefault() }, element("label", {}, label, field)), place];
}

const views = {
  async cluster() {
    const cluster = await ask("cluster");
    return [
      element("h1", {}, "Cluster"),
      element("p", { class: "soft" }, `id ${cluster.id ?? "–"}, controller ${cluster.controller ?? "–"}`),
      table([
        ["Broker", (row) => row.id, "number"],
        ["Address", (row) => row.address],
        ["Rack", (row) => row.rack ?? "–"],
        ["Stored", (row) => bytes(row.bytes), "number"],
      ], cluster.brokers),
    ];
  },

  async topics(name) {
    if (name) return topic(name);
    const columns = [
      ["Topic", (row) => link("topics", row.name)],
      ["Partitions", (row) => number(row.partitions), "number"],
      ["Replicas", (row) => number(row.replicas), "number"],
      ["Out of sync", (row) => element("span", { class: row.out_of_sync ? "bad" : "soft" }, number(row.out_of_sync)), "number"],
      ["Without leader", (row) => element("span", { class: row.without_leader ? "bad" : "soft" }, number(row.without_leader)), "number"],
    ];
    return [element("h1", {}, "Topics"), ...filtered(await ask("topics"), columns, "name", "Filter topics ( / )")];
  },

  async groups(name) {
    if (name) return group(name);
    const columns = [
      ["Group", (row) => (row.type === "Share" ? row.name : link("groups", row.name))],
      ["Type", (row) => row.type],
      ["State", (row) => row.state],
      ["Lag", (row) => number(row.lag), "number"],
      ["Last minutes", (row) => (row.chart.length > 1 ? chart(row.chart, true) : "")],
    ];
    return [element("h1", {}, "Groups"), ...filtered(await ask("groups"), columns, "name", "Filter groups ( / )")];
  },

  async schemas(name) {
    if (!name) return [element("h1", {}, "Schemas"), ...filtered(await ask("schemas"), [["Subject", (row) => link("schemas", row.name)]], "name", "Filter subjects ( / )")];
    const [subject, version] = [name, new URLSearchParams(location.hash.split("?")[1]).get("version")];
    const found = await ask(`schemas/${part(subject)}${version ? `?version=${part(version)}` : ""}`);
    const versions = found.versions.map((each) => element("a", { href: `#/schemas/${part(subject)}?version=${each}`, "aria-current": each === found.version ? "true" : null }, `version ${each}`));
    return [
      element("h1", {}, subject),
      element("p", { class: "soft" }, `${found.type}, id ${found.id}, version ${found.version ?? "–"}`),
      element("p", {}, versions.flatMap((each) => [each, " "])),
      element("pre", { class: "whole" }, found.text),
    ];
  },

  async timeline() {
    const place = element("div");
    const draw = async () => {
      const { requests } = await ask("timeline");
      const begin = requests.at(-1)?.at ?? 0;
      place.replaceChildren(table([
        ["Seconds", (row) => (row.at - begin).toFixed(3), "number"],
        ["Broker", (row) => row.node, "number"],
        ["Client", (row) => row.client ?? "–"],
        ["Request", (row) => `${row.request} v${row.version}`],
        ["Bytes", (row) => number(row.bytes), "number"],
        ["ms", (row) => row.milliseconds ?? "…", "number"],
        ["Errors", (row) => element("span", { class: "bad" }, row.errors.join(", "))],
      ], requests));
    };
    const own = present;
    await draw();
    if (own !== present) return [];
    const timer = setInterval(() => draw().catch(failed), 1000);
    leave = () => clearInterval(timer);
    return [element("h1", {}, "Requests to the embedded broker"), place];
  },
};

async function topic(name) {
  const own = present;
  const found = await ask(`topics/${part(name)}`);
  if (own !== present) return [];
  const partitions = table([
    ["Partition", (row) => row.partition, "number"],
    ["Leader", (row) => row.leader ?? element("span", { class: "bad" }, "none"), "number"],
    ["Replicas", (row) => row.replicas.join(", ")],
    ["In sync", (row) => row.in_sync.join(", ")],
    ["Start", (row) => number(row.start), "number"],
    ["End", (row) => number(row.end), "number"],
  ], found.partitions);
  return [
    element("h1", {}, name),
    ...records(name),
    element("details", {}, element("summary", {}, `Partitions (${number(found.total)})`), partitions,
      found.total > found.partitions.length ? element("p", { class: "soft" }, `the first ${found.partitions.length} are shown`) : null),
    element("details", {}, element("summary", {}, `Settings that differ from the defaults (${found.settings.length})`),
      table([["Setting", (row) => row.name], ["Value", (row) => row.value]], found.settings)),
    about.writes ? changes(name) : null,
  ];
}

const content = (value) => element("pre", { class: value.form === "null" ? "soft" : null, title: `${value.form}, ${value.bytes} bytes` },
  value.cut ? `${value.text}…` : value.text, value.note ? element("span", { class: "soft note" }, value.note) : null);

function recordRows(rows) {
  return table([
    ["Partition", (row) => row.partition, "number"],
    ["Offset", (row) => row.offset, "number"],
    ["Time (UTC)", (row) => time(row.timestamp)],
    ["Key", (row) => content(row.key)],
    ["Value", (row) => content(row.value)],
    ["Headers", (row) => row.headers.map((header) => element("div", {}, `${header.name}: ${header.value.text}`))],
  ], rows, { class: "records" });
}

function records(name) {
  const place = element("div", { "aria-live": "polite" });
  const field = (attributes) => element("input", { autocomplete: "off", ...attributes });
  const search = field({ name: "search", type: "search", "data-search": "" });
  const form = element("form", {},
    element("label", {}, "Contains ( / )", search),
    element("label", {}, "From", field({ name: "from", value: "latest", size: 12, list: "places" })),
    element("datalist", { id: "places" }, element("option", { value: "latest" }), element("option", { value: "earliest" })),
    element("label", {}, "Partition", field({ name: "partition", inputmode: "numeric", size: 5 })),
    element("label", {}, "Records", field({ name: "limit", type: "number", min: 1, max: 500, value: 50 })),
    element("button", {}, "Read"),
    element("button", { type: "button", id: "tail", "aria-pressed": "false" }, "Live tail"));
  const button = form.querySelector("#tail");
  let stream = null;
  const stop = () => {
    stream?.close();
    stream = null;
    button.setAttribute("aria-pressed", "false");
    button.textContent = "Live tail";
  };
  leave = stop;
  const read = async () => {
    stop();
    place.replaceChildren("Reading…");
    const result = await ask(`topics/${part(name)}/records?${new URLSearchParams(new FormData(form))}`);
    const since = form.elements.search.value && result.since !== null ? `, back to ${time(result.since)}` : "";
    const note = since + (result.stopped ? `, and ${result.stopped} before the end` : "");
    place.replaceChildren(element("p", { class: "soft" }, `${number(result.records.length)} shown, ${number(result.scanned)} read${note}`),
      recordRows(result.records));
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); read().catch((error) => place.replaceChildren(alertOf(error))); });
  button.addEventListener("click", () => {
    if (stream) return stop();
    let [last, skipped] = [[], 0];
    button.setAttribute("aria-pressed", "true");
    button.textContent = "Stop";
    stream = new EventSource(`/api/topics/${part(name)}/tail`);
    stream.onmessage = ({ data }) => {
      const news = JSON.parse(data);
      if (news.error) { stop(); place.replaceChildren(alertOf(new Error(news.error))); return; }
      last = [...news.records.reverse(), ...last].slice(0, 200);
      skipped += news.skipped;
      place.replaceChildren(element("p", { class: "soft" }, `live${skipped ? `, ${number(skipped)} not shown` : ""}`), recordRows(last));
    };
    stream.onerror = () => { stop(); place.replaceChildren(alertOf(new Error("the connection was lost"))); };
  });
  read().catch((error) => place.replaceChildren(alertOf(error)));
  return [form, place];
}

// Changes, where the page may make some. Each asks for the name of what it changes.
function changes(name) {
  const answer = element("p", { "aria-live": "polite" });
  const key = element("input", { name: "key" });
  const value = element("textarea", { name: "value", rows: 3, cols: 40 });
  const produce = async (event) => {
    event.preventDefault();
    if (!confirm(`Write a record to ${name}?`)) return;
    const written = await ask(`topics/${part(name)}/records`, { key: key.value || null, value: value.value });
    answer.textContent = `written to partition ${written.partition} at offset ${written.offset}`;
  };
  const remove = async () => {
    const typed = prompt(`This deletes all records. Type the name of the topic to delete it: ${name}`);
    if (typed === null) return;
    await ask(`topics/${part(name)}/delete`, { confirm: typed });
    location.hash = "#/topics";
  };
  const shown = (change) => (event) => change(event).catch((error) => answer.replaceChildren(alertOf(error)));
  return element("details", {}, element("summary", {}, "Change"),
    element("form", { onsubmit: shown(produce) }, element("label", {}, "Key", key), element("label", {}, "Value", value), element("button", {}, "Write")),
    element("button", { type: "button", class: "danger", onclick: shown(remove) }, "Delete the topic"), answer);
}

async function group(name) {
  const found = await ask(`groups/${part(name)}`);
  const answer = element("div", { "aria-live": "polite" });
  const move = (to) => async () => {
    const planned = await ask(`reset/${part(name)}`, { to });
    const lines = planned.moved.map((row) => `${row.topic} ${row.partition}: ${row.before ?? "–"} → ${row.after}`);
    const typed = prompt(`${lines.slice(0, 15).join("\n")}\nType the name of the group to move it: ${name}`);
    if (typed === null) return;
    if (typed !== name) throw new Error("that was another name; nothing has changed");
    await ask(`reset/${part(name)}`, { to, confirm: typed });
    await show();
  };
  const shown = (change) => () => change().catch((error) => answer.replaceChildren(alertOf(error)));
  return [
    element("h1", {}, name),
    element("p", {}, `${found.state}, lag ${number(found.total)}`),
    found.chart.length > 1 ? chart(found.chart, false) : element("p", { class: "soft" }, "the chart begins with the second sample, after ten seconds"),
    table([
      ["Topic", (row) => link("topics", row.topic)],
      ["Partition", (row) => row.partition, "number"],
      ["Committed", (row) => number(row.committed), "number"],
      ["End", (row) => number(row.end), "number"],
      ["Lag", (row) => number(row.lag), "number"],
      ["Member", (row) => row.member ?? "–"],
    ], found.partitions),
    about.writes ? element("p", {}, ...["earliest", "latest"].map((to) =>
      element("button", { type: "button", class: "danger", onclick: shown(move(to)) }, `Move to ${to}`)), answer) : null,
  ];
}

const alertOf = (error) => element("p", { class: "error", role: "alert" }, error.message);
const failed = (error) => main.replaceChildren(alertOf(error));

async function show() {
  leave();
  leave = () => {};
  present += 1;
  const own = present;
  const [view, name] = location.hash.replace(/^#\//, "").replace(/\?.*$/, "").split("/").map(decodeURIComponent);
  const chosen = view in views ? view : "cluster";
  const names = ["cluster", "topics", "groups", ...(about.schemas ? ["schemas"] : []), ...(about.embedded ? ["timeline"] : [])];
  document.getElementById("nav").replaceChildren(...names.map((each) =>
    element("a", { href: `#/${each}`, "aria-current": each === chosen ? "page" : null }, each[0].toUpperCase() + each.slice(1))));
  document.title = `${name ?? chosen} – Kafka`;
  try {
    const children = await views[chosen](name);
    if (own === present) main.replaceChildren(...children.filter((child) => child !== null));
  } catch (error) {
    if (own === present) failed(error);
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const field = document.querySelector("[data-search]");
  if (field) { event.preventDefault(); field.focus(); }
});
window.addEventListener("hashchange", show);
ask("about").then((result) => { about = result; return show(); }).catch(failed);
