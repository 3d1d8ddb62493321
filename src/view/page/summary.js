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

function idleName(why) {
    const waits = why === WHY.WARM_UP || why === WHY.DRAIN ? "idle: " : "idle, ";
    return waits + about.whys[why].text;
}

/* What there is to explain, found once. */
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

function showLegend() {
    const legend = document.getElementById("legend"), dark = isDark();
    const items = about.looks.flatMap(
        (look, n) => (seen.has(n) ? [make("li", {}, swatch(look.shades[0]), look.text)] : []));
    if (view.idle)
        about.whys.forEach((why, n) => {
            if (seenWhys.has(n))
                items.push(make("li", {}, swatch(dark ? why.dark : why.light), idleName(n)));
        });
    if (view.path) items.push(make("li", {}, swatch(ink.accent), "critical path"));
    if (plannedOne)
        items.push(
            make("li", {},
                 "striped: took more than a tenth longer than planned; bright top edge: shorter"));
    if (view.memory && !panels.some(panel => panel.memory) && timelines.some(hasMemory))
        items.push(make("li", {}, "memory: rows are too low for its curve; ] makes them higher"));
    if (panels.some(panel => panel.memory))
        items.push(make("li", {}, "curve: bytes in flight; dashed: planned peak"));
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

function beside(value, first, text) {
    const cell = make("td", {}, text(value));
    const part = value / first - 1;
    if (Number.isFinite(part) && percent(part) !== "0 %")
        cell.append(make("small", {}, " " + (part > 0 ? "+" : "−") + percent(Math.abs(part))));
    return cell;
}

/* Other numbers of microbatches are other work. */
const alike = timelines.every(t => t.microbatches === timelines[0].microbatches);

function compareTable() {
    const rows = [];
    const row = (name, of, text, compared = true) => rows.push(
        make("tr", {}, make("th", { scope: "row" }, name),
             ...timelines.map(
                 (t, n) => beside(of(t), n && compared && alike ? of(timelines[0]) : NaN, text))));
    row("makespan", t => t.makespan, timeText);
    row("bubble", t => t.bubble, percent, false);
    if (measuredOne && measuredOne.begin < 0)
        row("before the first compute", t => -t.begin, timeText, false);
    about.whys.forEach((why, n) => {
        if (timelines.some(t => sum(t, track => track.idle[n]) > 1e-7 * t.ranks * t.makespan))
            row(idleName(n), t => sum(t, track => track.idle[n]) / (t.ranks * t.makespan), percent,
                false);
    });
    if (timelines.some(t => sum(t, track => track.overhead) > 0))
        row("neither compute nor idle",
            t => sum(t, track => track.overhead) / (t.ranks * t.makespan), percent, false);
    row("peak bytes in flight, highest rank", t => most(t, track => track.peak), bytesText);
    row("bytes sent", t => sum(t, track => track.sentBytes), bytesText);
    row("messages", t => t.messages.count, String, !plannedOne);
    row("blocks", t => t.blocks.count + t.comms.count, String, false);
    const bars = make("tr", {}, make("th", { scope: "row" }, "idle by reason"),
                      ...timelines.map(t => make("td", {}, idleBar(t))));
    const head = make("tr", {}, make("th", {}, ""),
                      ...timelines.map(t => make("th", { scope: "col" }, t.title)));
    return make("div", { className: "scroll" },
                make("table", { id: "compared" }, make("caption", {}, "Summary"),
                     make("thead", {}, head), make("tbody", {}, ...rows, bars)));
}

function rankTable(t) {
    const whys = about.whys.map((why, n) => n).filter(n => sum(t, track => track.idle[n]) > 0);
    const planned = t.measured && t.tracks.some(track => track.planned >= 0);
    const names = [
        "rank", "busy", ...whys.map(n => about.whys[n].text), "peak bytes",
        ...(planned ? ["planned peak"] : []), "messages sent", "bytes sent"
    ];
    const rows = t.tracks.map(
        (track, rank) =>
            make("tr", {},
                 ...[String(rank), percent(t.makespan > 0 ? track.busy / t.makespan : 0),
                     ...whys.map(n => timeText(track.idle[n], t.makespan)), bytesText(track.peak),
                     ...(planned ? [track.planned < 0 ? "" : bytesText(track.planned)] : []),
                     String(track.sent), bytesText(track.sentBytes)]
                     .map(text => make("td", {}, text))));
    const head = make("tr", {}, ...names.map(name => make("th", { scope: "col" }, name)));
    return make("div", { className: "scroll" },
                make("table", {}, make("caption", {}, "Ranks: " + t.title), make("thead", {}, head),
                     make("tbody", {}, ...rows)));
}

/* Where a run lost most against its plan. */
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
    const part = percent(Math.abs(end) / plannedOne.makespan);
    const when = part === "0 %" ? "as planned"
                                : timeText(Math.abs(end)) + (end < 0 ? " earlier" : " later") +
                                      " than planned (" + part + ")";
    const whose = plannedOne.plan ? "" : " by " + plannedOne.title;
    const said = "The run ended " + when + whose + "; " + worst.length +
                 " of its computes took more than a tenth longer than planned" +
                 (worst.length ? ", these most:" : ".");
    return make("section", { id: "differences" }, make("h2", {}, "Against the plan"),
                make("p", {}, said), list);
}

function showSummary() {
    const parts = [compareTable()];
    if (plannedOne) parts.push(differences());
    parts.push(...timelines.map(rankTable));
    document.getElementById("summary").replaceChildren(...parts);
    document.getElementById("title").textContent = timelines.map(t => t.title).join(" · ");
}
