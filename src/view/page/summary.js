/* The legend and the tables under the timeline. */

function make(tag, properties, ...children) {
    const made = document.createElement(tag);
    Object.assign(made, properties);
    made.append(...children);
    return made;
}

function swatch(colour) {
    const made = make("span");
    made.style.background = colour;
    return made;
}

/* What the legend must explain, computed once. */
const seen = new Set(), seenWhys = new Set();
for (const t of timelines) {
    for (const kind of new Set(t.blocks.kind)) seen.add(lookOf[kind]);
    if (t.blocks.second.size) seen.add(FORWARD_LOOK);
    for (const second of t.blocks.second.values()) seen.add(lookOf[second[0]]);
    if (t.comms.count) seen.add(lookOf[KIND.SEND_F]);
    t.tracks.forEach(track => track.idle.forEach((time, why) => {
        if (time > 0) seenWhys.add(why);
    }));
}

function hasMemory(t) {
    return t.tracks.some(track => track.peak > 0);
}

/* Every entry is what is drawn, a colon, and what it means. */
function showLegend() {
    const legend = document.getElementById("legend"), dark = isDark(), items = [];
    const entry = (mark, text) => items.push(make("li", {}, ...(mark ? [mark] : []), text));
    about.looks.forEach((look, n) => {
        if (seen.has(n)) entry(swatch(look.shades[0]), look.text);
    });
    if (view.idle)
        about.whys.forEach((why, n) => {
            if (seenWhys.has(n))
                entry(swatch(dark ? why.dark : why.light), "idle: " + why.text + ", " + why.when);
        });
    if (view.path) entry(swatch(ink.accent), "bottom edge: on the critical path");
    if (plannedOne) {
        entry(null, "stripes: more than a tenth longer than planned");
        entry(null, "bright top edge: more than a tenth shorter than planned");
    }
    if (panels.some(panel => panel.memory)) {
        entry(null, "curve: memory held" + (counted ? ", in microbatches" : ""));
        entry(null, "dashed line: " + (measuredOne ? "planned peak" : "peak"));
    } else if (view.memory && timelines.some(hasMemory))
        entry(null, "curve: left out of rows this low, ] makes them higher");
    legend.replaceChildren(...items);
}

/* ------------------------------------------------------------------ tables */

function sum(t, of) {
    return t.tracks.reduce((total, track) => total + of(track), 0);
}

function most(t, of) {
    return t.tracks.reduce((highest, track) => Math.max(highest, of(track)), 0);
}

function idleBar(t) {
    const bar = make("div", { className: "bar" }), dark = isDark();
    const all = t.ranks * t.makespan;
    about.whys.forEach((why, n) => {
        const part = sum(t, track => track.idle[n]) / all;
        if (!(part > 0)) return;
        const piece = make("i", { title: why.text + ": " + percent(part) });
        piece.style.width = 100 * part + "%";
        piece.style.background = dark ? why.dark : why.light;
        bar.append(piece);
    });
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", "idle time by reason");
    return bar;
}

/* A table with a column for each timeline. */
function tableOf(caption, rows, properties = {}) {
    const head = make("tr", {}, make("td", {}, ""),
                      ...timelines.map(t => make("th", { scope: "col" }, t.title)));
    return make("div", { className: "scroll" },
                make("table", properties, make("caption", {}, caption), make("thead", {}, head),
                     make("tbody", {}, ...rows)));
}

function rowOf(name, cells) {
    return make("tr", {}, make("th", { scope: "row" }, ...[name].flat()),
                ...cells.map(cell => cell instanceof Node ? cell : make("td", {}, cell)));
}

/* ------------------------------------------------------------------- setup */

const READINGS = {
    async: "async: messages hold no rank",
    ordered: "ordered: a rank's messages go one by one",
    blocking: "blocking: a message holds both its ranks"
};

function rangeText([least, most], text) {
    return least === most ? text(least) : text(least) + " to " + text(most);
}

function messageCost(t) {
    const { message, messageBytes } = t.given;
    const time = message[1] > 0 ? rangeText(message, timeText) : "no time";
    return sized ? rangeText(messageBytes, bytesText) + ", " + time : time;
}

/* What the page shows, for readers who did not make it. */
function setupTable() {
    const rows = [], per = of => timelines.map(of);
    const given = of => per(t => (t.given ? of(t) : "measured"));
    const kinds = t => new Set([
        ...t.blocks.kind, ...[...t.blocks.second.values()].map(([kind]) => kind),
        ...(t.blocks.second.size ? [KIND.F] : [])
    ]);
    const seenKinds = timelines.map(kinds);
    rows.push(rowOf("ranks", per(t => String(t.ranks))));
    rows.push(rowOf("stages", per(t => String(t.stages))));
    rows.push(rowOf("microbatches", per(t => String(t.microbatches))));
    about.kinds.forEach(({ text }, kind) => {
        if (!timelines.some((t, n) => t.given?.[text] && seenKinds[n].has(kind))) return;
        rows.push(rowOf("cost of " + text, timelines.map((t, n) => {
            if (!t.given) return "measured";
            return seenKinds[n].has(kind) ? rangeText(t.given[text], timeText) : "–";
        })));
    });
    if (timelines.some(t => t.blocks.second.size))
        rows.push(rowOf("cost of OVERLAP_F_B", given(t => short(t.given.overlap) + " × (F + B)")));
    rows.push(rowOf("each message", given(messageCost)));
    if (timelines.some(hasMemory))
        rows.push(rowOf("memory of a stage",
                        given(t => rangeText(t.given.activationBytes, n => memoryText(t, n)) +
                                   (counted ? "" : " a microbatch"))));
    rows.push(rowOf("communication", given(t => READINGS[t.given.reading])));
    return tableOf("Setup", rows, { id: "setup" });
}

/* How to read the page; mentions only what it has. */
function howText() {
    const t = timelines[0], i = t.blocks.kind.findIndex(kind => classOf(kind) >= 0);
    const parts = ["Rows are ranks, time goes right, a block is an action"];
    if (i >= 0) {
        const [kind, stage, microbatch] = partsOf(t, i)[0];
        parts.push(": " + actionText(kind, stage, microbatch) + " is the " +
                   MEANS[about.kinds[kind].text] + " of stage " + stage + ", microbatch " +
                   microbatch + "; where only a number fits, it is the microbatch");
    }
    parts.push(". ");
    if (!seconds) parts.push("Time is in the units in which costs were given. ");
    if (timelines.some(t => t.blocks.count > 300 * t.ranks))
        parts.push("Where blocks are too thin to be seen, their colours share the row's height. ");
    if (counted && timelines.some(hasMemory))
        parts.push("Memory counts microbatches that a rank holds between forward and backward. ");
    parts.push("Between blocks a rank is idle; the bubble is that part of all ranks' time. ");
    parts.push("Point at a block or a gap for more, or press ? for the keys.");
    return parts.join("");
}

/* ----------------------------------------------------------------- summary */

function beside(value, first, text) {
    const cell = make("td", {}, text(value));
    const part = value / first - 1;
    if (Number.isFinite(part) && Math.abs(part) >= 5e-5)
        cell.append(make("small", {}, " " + (part > 0 ? "+" : "−") + percent(Math.abs(part))));
    return cell;
}

/* Timelines of different numbers of microbatches are different work: they are
 * not compared. */
const alike = timelines.every(t => t.microbatches === timelines[0].microbatches);

function compareTable() {
    const rows = [];
    const row = (name, of, text, compared = true) => rows.push(rowOf(
        name, timelines.map(
                  (t, n) => beside(of(t), n && compared && alike ? of(timelines[0]) : NaN, text))));
    row("makespan", t => t.makespan, timeText);
    row("bubble", t => t.bubble, percent, false);
    if (measuredOne && measuredOne.begin < 0)
        row("before the first compute", t => -t.begin, timeText, false);
    if (timelines.some(hasMemory))
        row("peak memory, highest rank", t => most(t, track => track.peak),
            (bytes => memoryText(timelines[0], bytes)));
    row("messages", t => t.messages.count, String, !plannedOne);
    if (sized) row("bytes sent", t => sum(t, track => track.sentBytes), bytesText);
    row("actions", t => t.blocks.count + t.comms.count, String, false);
    return tableOf("Summary", rows, { id: "compared" });
}

/* Where all ranks' time went. */
function idleTable() {
    const rows = [], dark = isDark();
    const part = (t, of) => sum(t, of) / (t.ranks * t.makespan || 1);
    const row = (name, of) => {
        if (timelines.some(t => part(t, of) > 1e-7))
            rows.push(rowOf(name, timelines.map(t => percent(part(t, of)))));
    };
    row("computing", track => track.busy);
    row("other work", track => track.overhead);
    about.whys.forEach(
        (why, n) =>
            row([swatch(dark ? why.dark : why.light), why.text, make("small", {}, " " + why.when)],
                track => track.idle[n]));
    rows.push(rowOf("idle, by reason", timelines.map(t => make("td", {}, idleBar(t)))));
    return tableOf("Where all ranks' time went", rows, { id: "idletime" });
}

function rankTable(t) {
    const whys = about.whys.map((why, n) => n).filter(n => sum(t, track => track.idle[n]) > 0);
    const planned = t.measured && t.tracks.some(track => track.planned >= 0);
    const names = [
        "rank", "computing", ...whys.map(n => about.whys[n].text),
        ...(hasMemory(t) ? ["peak memory"] : []), ...(planned ? ["planned peak"] : []),
        "messages sent", ...(sized ? ["bytes sent"] : [])
    ];
    const rows = t.tracks.map(
        (track, rank) =>
            make("tr", {},
                 ...[String(rank), percent(t.makespan > 0 ? track.busy / t.makespan : 0),
                     ...whys.map(n => timeText(track.idle[n])),
                     ...(hasMemory(t) ? [memoryText(t, track.peak)] : []),
                     ...(planned ? [track.planned < 0 ? "" : bytesText(track.planned)] : []),
                     String(track.sent), ...(sized ? [bytesText(track.sentBytes)] : [])]
                     .map(text => make("td", {}, text))));
    const head = make("tr", {}, ...names.map(name => make("th", { scope: "col" }, name)));
    return make("div", { className: "scroll" },
                make("table", {}, make("caption", {}, "Ranks: " + t.title), make("thead", {}, head),
                     make("tbody", {}, ...rows)));
}

/* Where a run lost most time against its plan. */
function worstOf(t) {
    const found = [];
    for (let i = 0; i < t.blocks.count; i++) {
        const planned = plannedLength(t, i), more = t.blocks.end[i] - t.blocks.start[i] - planned;
        if (more > 0.1 * planned) found.push([more, i, planned]);
    }
    return found.sort((x, y) => y[0] - x[0]);
}

const worstOnes = plannedOne ? worstOf(measuredOne) : [];

function differences() {
    const t = measuredOne, worst = worstOnes, end = t.makespan - plannedOne.makespan;
    const list = make("ol", { className: "worst" });
    for (const [more, i, planned] of worst.slice(0, 5)) {
        const button = make("button", {}, blockText(t, i) + " on rank " + t.blocks.rank[i]);
        button.onclick = () => goTo({ timeline: t.number, block: i });
        list.append(make("li", {}, button,
                         ": " + timeText(more) + " more than the planned " + timeText(planned)));
    }
    const part = Math.abs(end) / plannedOne.makespan;
    const when = part < 5e-5 ? "as planned"
                             : timeText(Math.abs(end)) + (end < 0 ? " earlier" : " later") +
                                   " than planned (" + percent(part) + ")";
    const whose = plannedOne.plan ? "" : " by " + plannedOne.title;
    const said = "The run ended " + when + whose + "; " + worst.length +
                 " of its computes took more than a tenth longer than planned" +
                 (worst.length ? ", these most:" : ".");
    return make("section", { id: "differences" }, make("h2", {}, "Against the plan"),
                make("p", {}, said), list);
}

function showSummary() {
    const parts = [compareTable(), idleTable(), setupTable()];
    if (about.curve?.loss.length || about.curve?.validation.length) parts.unshift(lossSection());
    if (plannedOne) parts.push(differences());
    parts.push(...timelines.map(rankTable));
    document.getElementById("how").textContent = howText();
    document.getElementById("summary").replaceChildren(...parts);
    document.getElementById("title").textContent = timelines.map(t => t.title).join(" · ");
}
