// The decision inspector. Data come as scripts that call `inspector.take(name, content)`: a page that is opened from a
// file can load scripts, but fetch nothing. All text goes through `textContent`, so what a case holds is shown, never
// run. report/inspector/workups.py explains the keys of the data.
"use strict";

const inspector = (() => {
  const byId = id => document.getElementById(id);
  const list = byId("decisions"), space = byId("space"), rows = byId("rows"), detail = byId("detail"), form = byId("filters");
  const field = name => form.elements.namedItem(name);
  const loaded = new Map(), waiting = new Map();
  const KEYS = ["run", "beside", "dataset", "decoding", "case", "turn", "disease", "verdict", "low", "high", "oracle",
    "selected", "find", "credited", "rated", "sort"];
  // What the page shows: run, case and turn, and the filters. The address of the page holds the same.
  const at = Object.fromEntries(KEYS.map(key => [key, ""]));
  let index, cases = {}, workups = [], others = null, items = [], current = -1, rowHeight = 30, drawing = 0;

  // Data

  // A script of data calls this with its name and content.
  function take(name, content) {
    loaded.set(name, content);
    if (waiting.has(name)) waiting.get(name)(content);
  }

  // A promise of the content of the script `name`, which is loaded once.
  function load(name) {
    if (loaded.has(name)) return Promise.resolve(loaded.get(name));
    return new Promise((resolve, reject) => {
      waiting.set(name, resolve);
      const script = document.createElement("script");
      script.src = name.split("/").map(encodeURIComponent).join("/") + ".js";
      script.onerror = () => reject(new Error(`${name}.js is missing beside this page: run \`snakemake inspector\` again`));
      document.head.append(script);
    });
  }

  const viewOf = (run, dataset) => index.views.find(view => view.run === run && view.dataset === dataset);

  // Words

  const number = (x, digits = 2) => x === null || x === undefined ? "–" : x.toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");
  const signed = (x, digits = 3) => (x > 0 ? "+" : "") + number(x, digits);
  const usd = x => `${number(x)} USD`;

  // The words for an action, a pair [kind, name].
  function label([kind, name]) {
    switch (kind) {
      case "end": return name ? `Diagnose: ${name}` : "Diagnose";
      case "invalid": return "a reply that cannot be read";
      case "repeat": return `${name} (again)`;
      case "unavailable": return `${name} (not available)`;
      case "over_budget": return `${name} (over budget)`;
      default: return name;
    }
  }

  const NAMES = {run: "run", beside: "run beside", dataset: "data set", decoding: "decoding", case: "case", turn: "turn"};

  const WHY = {
    disagreed: "Selected: workups that part here end differently (cache disagreement).",
    entropy: "Selected: the policy is uncertain here (entropy).",
    all: "Selected: every state is.",
    "": "Not selected by training's rule; valued here all the same.",
  };

  // A new element. A property `class` sets its class, `onclick` its listener, any other an attribute.
  function make(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name === "class") made.className = value;
      else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter(child => child !== null && child !== undefined && child !== ""));
    return made;
  }

  function bar(share) {
    const fill = make("i");
    fill.style.width = `${Math.round(100 * share)}%`;
    return make("span", {class: "share", "aria-hidden": "true"}, fill);
  }

  // What is shown

  // Whether an episode passes the filters of episodes; `fitsDecision` is for those of decisions.
  function fits(workup) {
    const gold = cases[workup.case]?.gold ?? "";
    return (!at.decoding || workup.decoding === at.decoding)
      && (!at.disease || gold === at.disease)
      && (!at.verdict || workup.correct === (at.verdict === "right"))
      && (at.low === "" || workup.cost_usd >= Number(at.low))
      && (at.high === "" || workup.cost_usd <= Number(at.high))
      && (!at.credited || workup.steps.some(step => step.credit))
      && (!at.find || workup.case.toLowerCase().includes(at.find.toLowerCase()));
  }

  function fitsDecision(step) {
    const said = step?.oracle, why = step?.credit?.why;
    return (!at.rated || Boolean(step?.rated))
      && (!at.oracle || (said && said.disagrees === (at.oracle === "disagrees")))
      && (!at.selected || (step?.credit && (at.selected === "no" ? !why : at.selected === "any" ? why : why === at.selected)));
  }

  // Orders of the list: the decision with the smallest number is first.
  const SORTS = {
    lost: step => -(step.oracle?.lost ?? -1),
    low: step => step.credit?.process ?? 9,
    high: step => -(step.credit?.process ?? -9),
    entropy: step => -(step.credit?.entropy ?? -1),
    charge: step => -step.charge,
  };

  // List the decisions that pass all filters, in `items`, and show one of them.
  function choose() {
    items = [];
    for (const workup of workups) {
      if (!fits(workup)) continue;
      // A workup whose words are not kept is one line.
      const turns = workup.steps.length ? workup.steps : [undefined];
      turns.forEach((step, turn) => { if (fitsDecision(step)) items.push({workup, turn, step}); });
    }
    if (SORTS[at.sort]) {
      const key = SORTS[at.sort];
      items = items.filter(item => item.step);
      items.sort((a, b) => key(a.step) - key(b.step));
    }
    const count = new Set(items.map(item => item.workup)).size;
    byId("count").textContent = `${items.length.toLocaleString("en")} decisions of ${count.toLocaleString("en")} workups`;
    current = items.findIndex(item => item.workup.case === at.case && item.turn === Number(at.turn || 0));
    if (current < 0 && at.case) current = items.findIndex(item => item.workup.case === at.case);
    // Unasked, show a decision that training would have credited: it has the most to show.
    if (current < 0 && items.length) current = SORTS[at.sort] ? 0 : Math.max(0, items.findIndex(item => item.step?.credit?.why));
    rows.style.setProperty("--name", `${Math.max(4, ...Object.keys(cases).slice(0, 50).map(name => Math.min(name.length, 15))) + 1.5}ch`);
    space.style.height = `${items.length * rowHeight}px`;
    go(current, false);
  }

  // The list: only the rows in sight are there.

  function draw() {
    drawing = 0;
    const first = Math.max(0, Math.floor(list.scrollTop / rowHeight) - 8);
    const last = Math.min(items.length, Math.ceil((list.scrollTop + list.clientHeight) / rowHeight) + 8);
    rows.style.transform = `translateY(${first * rowHeight}px)`;
    rows.replaceChildren(...items.slice(first, last).map((item, i) => row(item, first + i)));
    const active = current >= first && current < last ? `row-${current}` : null;
    if (active) list.setAttribute("aria-activedescendant", active);
    else list.removeAttribute("aria-activedescendant");
  }

  const redraw = () => { drawing ||= requestAnimationFrame(draw); };

  // The element of one item of the list; `place` is its index.
  function row({workup, turn, step}, place) {
    const starts = place === 0 || items[place - 1].workup !== workup;
    const verdict = workup.correct ? "right" : "wrong";
    const value = step ? (at.sort === "lost" ? number(step.oracle?.lost, 3) : at.sort === "entropy" ? number(step.credit?.entropy)
      : at.sort === "charge" ? number(step.charge) : step.credit ? signed(step.credit.process) : "") : "";
    const made = make("div", {
      class: starts ? "row first" : "row", role: "option", id: `row-${place}`, "aria-selected": String(place === current),
      "aria-posinset": place + 1, "aria-setsize": items.length, onclick: () => go(place),
    },
      make("span", {class: verdict, title: verdict}, workup.correct ? "✓" : "✗"),
      make("span", {title: workup.case}, workup.case),
      make("span", {class: "num"}, step ? `${turn + 1}` : ""),
      make("span", {}, step?.rated ? make("b", {class: "rated", title: "rated in the expert study"}, "◆ ") : "", step ? label(step.action) : `${workup.turns} turns`),
      make("span", {class: "num", title: "R_proc, or what the list is sorted by"}, value));
    return made;
  }

  // Show the item with the index `place`.
  function go(place, scroll = true) {
    current = Math.max(Math.min(place, items.length - 1), items.length ? 0 : -1);
    const item = items[current];
    if (item) {
      at.case = item.workup.case;
      at.turn = String(item.turn);
      const top = current * rowHeight;
      if (!scroll || top < list.scrollTop || top + rowHeight > list.scrollTop + list.clientHeight)
        list.scrollTop = Math.max(0, top - (scroll && top > list.scrollTop ? list.clientHeight - 2 * rowHeight : rowHeight));
    }
    remember();
    redraw();
    show();
  }

  // The decision

  function show() {
    const item = items[current];
    if (!item) {
      detail.replaceChildren(make("p", {class: "hole"}, "No decision fits: widen the filter."));
      return;
    }
    const {workup, turn} = item, told = cases[workup.case] ?? {};
    const beside = others?.find(other => other.case === workup.case && other.decoding === workup.decoding);
    const states = [...new Map(ratings(workup).map(each => [each.state, each])).values()];
    document.body.classList.toggle("two", Boolean(at.beside));
    detail.replaceChildren(
      make("div", {class: "case"},
        make("h2", {}, `${workup.case} · ${workup.decoding}`),
        make("p", {}, "True diagnosis: ", make("strong", {}, told.gold ?? "–")),
        told.summary ? make("details", {open: innerWidth > 800}, make("summary", {}, "Presentation"), make("p", {class: "text"}, told.summary))
          : make("p", {class: "hole"}, "A credentialed case: its texts are not shown, names of examinations are pseudonyms."),
        states.length ? make("p", {class: "small"}, "Rated in the expert study: ", ...states.map(({source, turn}) => viewOf(source, at.dataset)
          ? make("button", {type: "button", onclick: () => set({run: source, turn: String(turn), decoding: "greedy"}).catch(fail)},
            `turn ${turn + 1} of ${source}`)
          : ` turn ${turn + 1} of ${source}, which inspector.runs does not name.`)) : ""),
      make("div", {class: "sides"},
        side(at.run, workup, turn, turnTo),
        at.beside ? (beside ? side(at.beside, beside, Math.min(turn, Math.max(0, beside.steps.length - 1)), null)
          : make("p", {class: "hole"}, `${at.beside} has no such workup.`)) : ""));
  }

  // One run's episode at a turn. `turnTo` moves the whole page to another turn. It is null for the run beside, whose
  // turn changes alone.
  function side(run, workup, turn, turnTo) {
    const box = make("section", {class: "side", "aria-label": run});
    const fill = now => {
      const step = workup.steps[now];
      box.replaceChildren(
        make("h2", {}, `${run} `, make("span", {class: workup.correct ? "right" : "wrong"}, workup.correct ? "✓ right" : "✗ wrong")),
        make("p", {class: "small"}, `${workup.said ? `said ${workup.said}` : "named no diagnosis"}${workup.forced ? ", forced" : ""}; `
          + `${usd(workup.cost_usd)}, ${workup.n_tests} examination${workup.n_tests === 1 ? "" : "s"} counted, ${workup.n_na} not available, utility ${number(workup.utility, 3)}`),
        workup.steps.length ? make("ol", {class: "turns", "aria-label": "Turns"}, ...workup.steps.map((each, t) => make("li", {},
          make("button", {type: "button", "aria-current": t === now ? "step" : null, onclick: () => turnTo ? turnTo(t) : fill(t)},
            `${t + 1} ${label(each.action)}`)))) : make("p", {class: "hole"}, "Its decisions are not shown: the agent saw the whole record, or its words are not kept."),
        ...(step ? decision(workup, step, now) : []));
    };
    fill(turn);
    return box;
  }

  function decision(workup, step, turn) {
    const known = workup.steps.slice(0, turn);
    return [
      make("h3", {}, `Known before turn ${turn + 1}`),
      known.length ? make("ol", {class: "evidence"}, ...known.map(each => evidence(workup, each)))
        : make("p", {class: "small"}, "The presentation alone."),
      make("h3", {}, `Turn ${turn + 1}: ${label(step.action)}`),
      make("p", {class: "small"}, `Charged ${usd(step.charge)}, ${usd(step.spent)} so far.`),
      step.reply !== undefined ? make("details", {}, make("summary", {}, "Its words"), make("p", {class: "text"}, step.reply)) : "",
      ...(step.credit ? credit(step) : [make("p", {class: "hole"}, workup.forced && turn === workup.steps.length - 1
        ? "Forced to diagnose: no choice to credit."
        : "Not credited: of each data set a few cases are (setting inspector.cases), and policies of our own alone.")]),
      ...(step.oracle ? oracle(step) : []),
      ...study(workup, step),
    ];
  }

  const ratings = workup => index.study.filter(each => each.dataset === at.dataset
    && [workup.case, cases[workup.case]?.digest].includes(each.note_id));

  // What the raters of the expert study gave each run for what it would do at this state, whoever came to it.
  function study(workup, step) {
    const rated = step.rated ? ratings(workup).filter(each => each.state === step.rated) : [];
    if (!rated.length) return [];
    const dimensions = Object.keys(rated[0].means);
    return [
      make("h3", {}, "What the raters of the expert study gave"),
      make("div", {class: "wide", tabindex: "0", role: "region", "aria-label": "Ratings"}, make("table", {},
        make("thead", {}, make("tr", {}, ...["Run and its action", ...dimensions].map(text => make("th", {scope: "col"}, text.replaceAll("_", " "))))),
        make("tbody", {}, ...rated.map(each => make("tr", {}, make("td", {}, `${each.run}: ${each.action}`),
          ...dimensions.map(name => make("td", {}, number(each.means[name])))))))),
    ];
  }

  // An earlier decision with its result.
  function evidence(workup, step) {
    const result = ["result", "repeat"].includes(step.action[0]) ? cases[workup.case]?.results?.[step.action[1]] : "";
    return make("li", {}, make("strong", {}, label(step.action)), step.charge ? ` (${usd(step.charge)})` : "",
      result ? make("span", {class: "text"}, `: ${result}`) : "");
  }

  // The credit of a decision: why its state is selected, R_proc, and a table of the candidates.
  function credit(step) {
    const {entropy, why, process, candidates} = step.credit;
    const truth = candidates.some(each => each.true !== undefined);
    const head = ["Action", "p̂", "Û", "right", "tests", "USD", "N_na", ...(truth ? ["true value"] : [])];
    return [
      make("p", {}, WHY[why] ?? why, ` Entropy ${number(entropy, 3)} ${index.credit.entropy_base === "e" ? "nats" : "bits"}, η ${index.credit.threshold}.`),
      make("p", {}, make("strong", {}, `R_proc ${signed(process)}`), process === null ? " (no value)"
        : `: the value of the action taken against the candidates (baseline: ${index.credit.baseline}, bounded to ±${index.credit.clip}).`
          + (step.action[0] === "end" ? " A diagnosis taken is judged by its own words; Û of diagnosing is the share of right ones among those drawn." : "")),
      make("div", {class: "wide", tabindex: "0", role: "region", "aria-label": "Candidates"},
        make("table", {}, make("thead", {}, make("tr", {}, ...head.map(text => make("th", {scope: "col"}, text)))),
          make("tbody", {}, ...candidates.flatMap(each => candidate(each, each.taken, truth))))),
      make("p", {class: "small"}, `Bars in full colour: the candidates. p̂: how often the policy chose the action in ${index.credit.samples} samples, so the one taken may have 0. `
        + "Û: mean utility of the action's continuations. right, tests, USD, N_na: the means behind Û, which are the share of right diagnoses, "
        + "examinations counted, cost, and requests for what is not available."
        + (truth ? " true value: what the synthetic hospital's exact model says." : "")),
    ];
  }

  // A candidate, and below it a row of its own for its continuations, as wide as the table.
  function candidate(each, taken, truth) {
    const valued = each.value !== undefined, name = label(each.action) + (taken ? " ← taken" : "");
    const cells = valued ? [number(each.value, 3), number(each.correct), number(each.tests), number(each.cost_usd), number(each.infeasible)] : ["", "", "", "", ""];
    const below = each.endings?.length ? make("tr", {hidden: true}, make("td", {colspan: truth ? 8 : 7}, continuations(each))) : null;
    const open = below && make("button", {type: "button", "aria-expanded": "false", onclick: () => {
      below.hidden = !below.hidden;
      open.setAttribute("aria-expanded", String(!below.hidden));
    }}, name);
    return [make("tr", {class: [taken ? "taken" : "", each.in_top_m ? "top" : ""].join(" ").trim()},
      make("td", {}, open ?? name),
      make("td", {}, bar(each.share), number(each.share)),
      ...cells.map(text => make("td", {}, text)),
      truth ? make("td", {}, valued ? number(each.true, 3) : "") : ""), ...(below ? [below] : [])];
  }

  function continuations(each) {
    return make("ol", {}, ...each.endings.map(end => make("li", {},
      make("span", {class: end.correct >= 0.5 ? "right" : "wrong"}, typeof end.correct === "number" ? `${number(end.correct)} ` : end.correct ? "✓ " : "✗ "),
      end.path.map(label).join(" → ") || "diagnosed",
      end.cut ? ` · cut at H = ${index.credit.horizon}: its diagnosis was forced` : "",
      ` · ${number(end.cost_usd)} USD, ${end.tests} tests, ${end.infeasible} not available, U ${number(end.utility, 3)}`,
      end.source === "suffix" ? " · what a workup of the group did" : "")),
      ...(each.failed ? [make("li", {class: "hole"}, `${each.failed} did not come back`)] : []));
  }

  function oracle({oracle: said}) {
    return [
      make("h3", {}, "What the model of the synthetic hospital says"),
      make("p", {}, said.disagrees ? "Better: " : "Best: ", make("strong", {}, label(said.best)), ` (${number(said.value, 3)}); the action taken is worth `
        + `${number(said.taken, 3)}${said.lost ? `, ${number(said.lost, 3)} less` : ""}.`),
      make("div", {class: "posterior"}, ...said.posterior.flatMap(([disease, p]) =>
        [make("span", {}, disease), bar(p), make("span", {}, number(p, 3))])),
    ];
  }

  // Moving

  // Show another turn of the episode that is shown.
  function turnTo(turn) {
    const {workup} = items[current];
    const place = items.findIndex(item => item.workup === workup && item.turn === turn);
    if (place >= 0) go(place);
    else { // that turn is filtered out: show it, and leave the list alone
      items[current] = {workup, turn, step: workup.steps[turn]};
      go(current);
    }
  }

  // Go to the next episode of the list (way 1) or to the one before (way -1).
  function byCase(way) {
    const {workup} = items[current] ?? {};
    let place = current;
    while (items[place]?.workup === workup) place += way;
    if (!items[place]) return;
    while (way < 0 && items[place - 1]?.workup === items[place].workup) place -= 1;
    go(place);
  }

  function press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
    const typing = event.target.closest("select, input");
    if (typing) {
      if (event.key === "Escape") list.focus();
      return;
    }
    const inDetail = detail.contains(event.target), page = Math.max(1, Math.floor(list.clientHeight / rowHeight) - 1);
    const item = items[current], turn = Number(at.turn || 0);
    const moves = {
      j: () => go(current + 1), k: () => go(current - 1), "[": () => byCase(-1), "]": () => byCase(1),
      ArrowRight: () => item && turn + 1 < item.workup.steps.length && turnTo(turn + 1), ArrowLeft: () => turn > 0 && turnTo(turn - 1),
      "/": () => { byId("more").open = true; field("find").focus(); }, "?": () => byId("help").showModal(),
      d: () => (detail.querySelector("summary, button") ?? detail).focus(), l: () => list.focus(),
      b: () => { const runs = ["", ...index.runs.filter(run => run !== at.run && viewOf(run, at.dataset))];
        set({beside: runs[(runs.indexOf(at.beside) + 1) % runs.length]}); },
      ...(inDetail ? {} : {
        ArrowDown: () => go(current + 1), ArrowUp: () => go(current - 1), PageDown: () => go(current + page),
        PageUp: () => go(current - page), Home: () => go(0), End: () => go(items.length - 1),
      }),
    };
    if (!Object.hasOwn(moves, event.key) || (inDetail && event.target.closest(".wide") && event.key.startsWith("Arrow"))) return;
    event.preventDefault();
    moves[event.key]();
  }

  // The address holds what is shown, so that a link leads to a decision.

  function remember() {
    const told = new URLSearchParams(KEYS.filter(key => at[key] !== "").map(key => [key, at[key]]));
    history.replaceState(null, "", `#${told}`);
  }

  function recall() {
    const told = new URLSearchParams(location.hash.slice(1));
    return Object.fromEntries(KEYS.map(key => [key, told.get(key) ?? ""]));
  }

  // What the address names and the page does not show: a reader of the link must not take another decision for it.
  async function visit() {
    const address = recall();
    await set(address);
    const view = {...at, case: [at.case, cases[at.case]?.digest].includes(address.case) ? address.case : at.case};
    const missing = ["run", "beside", "dataset", "decoding", "case", "turn"].filter(key => address[key] !== "" && address[key] !== view[key]);
    byId("missing").textContent = missing.length ? `Not here: ${missing.map(key => `${NAMES[key]} ${address[key]}`).join(", ")}. Another decision is shown.` : "";
  }

  // Change what is shown: load the data that it needs, fill in the filters, and list the decisions.
  async function set(changes) {
    byId("missing").textContent = "";
    Object.assign(at, changes);
    const views = index.views;
    if (!views.length) throw new Error("no evaluation was found: name runs in inspector.runs");
    const view = viewOf(at.run, at.dataset) ?? views.find(each => each.run === at.run) ?? views.find(each => each.dataset === at.dataset) ?? views[0];
    [at.run, at.dataset] = [view.run, view.dataset];
    if (at.beside === at.run || !viewOf(at.beside, at.dataset)) at.beside = "";
    const names = [`data/${at.dataset}`, view.data, ...(at.beside ? [viewOf(at.beside, at.dataset).data] : [])];
    const [found, mine, theirs] = await Promise.all(names.map(load));
    [cases, workups, others] = [found, mine, theirs ?? null];
    // Other results call a credentialed case by its digest, also where its texts are shown here.
    at.case = Object.keys(cases).find(name => at.case && cases[name].digest === at.case) ?? at.case;
    const decodings = [...new Set(workups.map(workup => workup.decoding))];
    if (at.decoding && !decodings.includes(at.decoding)) at.decoding = "";
    if (!at.decoding) at.decoding = decodings[0] ?? "";
    offer("run", index.runs.filter(run => views.some(each => each.run === run)));
    offer("dataset", index.datasets.map(each => [each.name, each.label]));
    offer("beside", [["", "nothing"], ...index.runs.filter(run => run !== at.run && viewOf(run, at.dataset))]);
    offer("decoding", decodings);
    offer("disease", [["", "any"], ...[...new Set(Object.values(cases).map(each => each.gold))].sort()]);
    for (const key of ["verdict", "low", "high", "oracle", "selected", "find", "sort"]) field(key).value = at[key];
    for (const key of ["credited", "rated"]) field(key).checked = Boolean(at[key]);
    byId("rated").hidden = !index.study.length;
    choose();
  }

  // Fill the menu `name` with options, each a value or a pair [value, text].
  function offer(name, options) {
    field(name).replaceChildren(...options.map(option => {
      const [value, text] = Array.isArray(option) ? option : [option, option];
      return make("option", {value, selected: value === at[name]}, text);
    }));
    field(name).value = at[name];
  }

  function fail(error) {
    detail.replaceChildren(make("p", {class: "hole", role: "alert"}, String(error.message ?? error)));
  }

  async function start() {
    index = await load("data/index");
    byId("mark").textContent = index.mark;
    byId("notices").textContent = [...index.datasets.map(each => `${each.label}: ${each.about}`), ...index.notices].join(" ");
    rowHeight = parseFloat(getComputedStyle(document.documentElement).fontSize) * 1.9;
    list.addEventListener("scroll", redraw, {passive: true});
    addEventListener("resize", redraw);
    addEventListener("keydown", press);
    addEventListener("hashchange", () => visit().catch(fail));
    form.addEventListener("submit", event => event.preventDefault());
    form.addEventListener("input", event => {
      const {name, value, type, checked} = event.target;
      if (event.target.tagName === "SELECT") list.focus();  // so that the arrow keys turn decisions, not the menu
      set({[name]: type === "checkbox" ? (checked ? "yes" : "") : value}).catch(fail);
    });
    form.addEventListener("reset", event => {
      event.preventDefault();
      set(Object.fromEntries(KEYS.slice(6).map(key => [key, ""]))).catch(fail);
    });
    byId("help-open").addEventListener("click", () => byId("help").showModal());
    byId("skip").addEventListener("click", event => { event.preventDefault(); list.focus(); });
    await visit();
    draw();
    document.documentElement.dataset.ready = Math.round(performance.now());
  }

  addEventListener("DOMContentLoaded", () => start().catch(fail));
  return {take};
})();
