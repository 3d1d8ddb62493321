/* Pointer, keys, search, and the view in the address. */

const tip = document.getElementById("tip"), said = document.getElementById("said");
const findBox = document.getElementById("find"), foundText = document.getElementById("found");
let hovered = null; /* under the pointer: as view.at, or a gap */
let dirty = 0, frame = 0, movedAt = 0, fitted = true;
const BLOCKS = 1, MARKS = 2, LAYOUT = 4, CONTROLS = 8, TABLES = 16;

/* Requests a new frame of what has changed. */
function renew(what, moving = false) {
    dirty |= what;
    if (moving) movedAt = performance.now();
    if (!frame) frame = requestAnimationFrame(show);
}

function show() {
    const what = dirty;
    frame = dirty = 0;
    if (what & TABLES) chooseInk();
    if (what & (LAYOUT | CONTROLS | TABLES)) layOut();
    if (wantedTop >= 0) host.scrollTop = wantedTop;
    wantedTop = -1;
    if (what & TABLES) showSummary(); /* its bars have the theme's colours */
    if (what & (CONTROLS | TABLES)) {
        showLegend();
        showButtons();
    }
    const moving = performance.now() - movedAt < 120;
    if (what & ~MARKS) drawBlocks(moving);
    drawMarks();
    placeTip();
    clearTimeout(stillTimer);
    if (moving) stillTimer = setTimeout(() => renew(BLOCKS), 140);
    keepAddress();
}
let stillTimer = 0;

/* -------------------------------------------------------------------- range */

const SHORTEST = 1e-9; /* of all */

function setRange(from, to) {
    const all = whole.to - whole.from;
    const span = Math.min(all * 1.06, Math.max(all * SHORTEST, to - from));
    const middle = (from + to) / 2, edge = all * 0.03;
    from = Math.min(Math.max(middle - span / 2, whole.from - edge), whole.to + edge - span);
    view.from = from;
    view.to = from + span;
    fitted = false;
    renew(BLOCKS, true);
}

function fit() {
    setRange(whole.from, whole.to);
    view.from = whole.from;
    view.to = whole.to;
    fitted = true;
}

/* The time that keeps its position when keys zoom: that of the selected block,
 * if it is visible. */
function zoomCentre() {
    const middle = (view.from + view.to) / 2;
    if (!view.at) return middle;
    const t = timelines[view.at.timeline], list = view.at.comm ? t.comms : t.blocks;
    const at = (list.start[view.at.block] + list.end[view.at.block]) / 2;
    return at >= view.from && at <= view.to ? at : middle;
}

function zoom(factor, time = zoomCentre()) {
    const left = (time - view.from) * factor, right = (view.to - time) * factor;
    setRange(time - left, time + right);
}

function pan(part) {
    const by = part * (view.to - view.from);
    setRange(view.from + by, view.to + by);
}

function panelAt(x, y) {
    const box = host.getBoundingClientRect(), cx = x - box.left, cy = y - box.top + host.scrollTop;
    return panels.find(panel => cx >= panel.x - GUTTER && cx <= panel.x + panel.w + RIGHT &&
                                cy >= panel.y && cy < panel.y + panel.h);
}

function timeAt(panel, x) {
    const box = host.getBoundingClientRect();
    return view.from + (x - box.left - panel.x) / panel.w * (view.to - view.from);
}

/* What is at a point of the page: a block, a message's end, a gap, or null. */
function pick(x, y) {
    const panel = panelAt(x, y);
    if (!panel) return null;
    const t = panel.t, box = host.getBoundingClientRect();
    const inRows = y - box.top + host.scrollTop - panel.y - HEAD;
    const rank = Math.floor(inRows / panel.row);
    if (inRows < 0 || rank >= t.ranks) return null;
    const time = timeAt(panel, x), slack = 2 * (view.to - view.from) / panel.w;
    const inRow = inRows - rank * panel.row;
    if (time < view.from || time > view.to) return null;
    if (panel.comm && inRow >= panel.lane && inRow < panel.lane + panel.comm)
        return pickComm(t, rank, time, slack, inRow - panel.lane < panel.comm / 2);
    const b = t.blocks, end = b.first[rank + 1];
    const after = firstAbove(b.start, b.first[rank], end, time);
    for (const i of [after - 1, after]) {
        if (i < b.first[rank] || i >= end) continue;
        if (time >= b.start[i] && time <= b.end[i]) return { timeline: t.number, block: i };
    }
    for (const i of [after - 1, after]) {
        if (i < b.first[rank] || i >= end) continue;
        const thin = b.end[i] - b.start[i] < 2 * slack;
        if (thin && time >= b.start[i] - slack && time <= b.end[i] + slack)
            return { timeline: t.number, block: i };
    }
    return time < 0 || time > t.makespan ? null : { timeline: t.number, gap: after, rank };
}

function pickComm(t, rank, time, slack, sends) {
    const c = t.comms,
          low = firstAbove(c.start, c.first[rank], c.first[rank + 1], time - c.longest - slack);
    for (let i = firstAbove(c.start, low, c.first[rank + 1], time + slack) - 1; i >= low; i--) {
        const isSend = c.kind[i] === KIND.SEND_F || c.kind[i] === KIND.SEND_B;
        if (isSend === sends && time >= c.start[i] - slack && time <= c.end[i] + slack)
            return { timeline: t.number, block: i, comm: true };
    }
    return null;
}

/* ---------------------------------------------------------------------- tip */

function linesOf(what) {
    if (!what) return null;
    const t = timelines[what.timeline];
    if (what.comm) return describeComm(t, what.block);
    return what.block === undefined ? describeGap(t, what.rank, what.gap) : describe(t, what.block);
}

let pointer = null;
function showTip() {
    const lines = linesOf(hovered ?? view.at);
    tip.hidden = !lines;
    if (!lines) return;
    tip.replaceChildren(make("b", {}, lines[0]),
                        ...lines.slice(1).map(text => make("div", {}, text)));
    placeTip();
}

function placeTip() {
    if (tip.hidden || !panels.length) return;
    let x, y;
    if (hovered && pointer)
        [x, y] = [pointer.x + 14, pointer.y + 16];
    else if (view.at) {
        const panel = panels.find(one => one.t.number === view.at.timeline),
              place = placeOf(panel, view.at.block, view.at.comm);
        const box = host.getBoundingClientRect();
        [x, y] = [Math.min(Math.max(place.x, box.left), box.right), place.y + place.h + 6];
    } else
        return;
    const box = tip.getBoundingClientRect();
    if (y + box.height > innerHeight - 4) y = Math.max(4, y - box.height - 50);
    tip.style.left = Math.max(4, Math.min(x, innerWidth - box.width - 6)) + "px";
    tip.style.top = y + "px";
}

function hover(what) {
    const same = JSON.stringify(what) === JSON.stringify(hovered);
    hovered = what;
    if (same)
        placeTip();
    else {
        showTip();
        renew(MARKS);
    }
}

/* ------------------------------------------------------------------- choice */

function choose(what, follows) {
    view.at = what;
    hovered = null;
    if (what && follows && !what.comm) {
        const t = timelines[what.timeline], microbatch = t.blocks.microbatch[what.block];
        if (classOf(partsOf(t, what.block)[0][0]) >= 0)
            view.follow = view.follow === microbatch ? null : microbatch;
    }
    const lines = linesOf(what);
    said.textContent =
        lines ? lines.join(". ") +
                    (view.follow === null ? "" : ". Following microbatch " + view.follow)
              : "";
    showTip();
    renew(BLOCKS);
}

function letGo() {
    view.at = view.follow = hovered = null;
    said.textContent = "";
    showTip();
    renew(BLOCKS);
}

/* Scrolls and zooms so that a block is visible. */
function goTo(what) {
    const t = timelines[what.timeline], list = what.comm ? t.comms : t.blocks;
    const panel = panels.find(one => one.t === t),
          length = list.end[what.block] - list.start[what.block];
    let span = view.to - view.from;
    if (length > 0 && length / span * panel.w < 30)
        span = Math.min(span, Math.max(length * panel.w / 60, (whole.to - whole.from) * SHORTEST));
    const middle = (list.start[what.block] + list.end[what.block]) / 2;
    if (span !== view.to - view.from || list.start[what.block] < view.from ||
        list.end[what.block] > view.to)
        setRange(middle - span / 2, middle + span / 2);
    const top = panel.y + HEAD + list.rank[what.block] * panel.row;
    if (top < host.scrollTop || top + panel.row > host.scrollTop + high)
        host.scrollTop = top - high / 2;
    choose(what, false);
}

/* From block to block, from rank to rank. */
function step(key) {
    if (!view.at || view.at.comm) {
        const panel = panels[0], t = panel.t, b = t.blocks;
        for (let rank = 0; rank < t.ranks; rank++) {
            const i = firstAbove(b.end, b.first[rank], b.first[rank + 1], view.from);
            if (i < b.first[rank + 1]) return goTo({ timeline: t.number, block: i });
        }
        return undefined;
    }
    const t = timelines[view.at.timeline], b = t.blocks, i = view.at.block, rank = b.rank[i];
    const low = b.first[rank], last = b.first[rank + 1] - 1;
    if (key === "ArrowLeft") return goTo({ timeline: t.number, block: Math.max(low, i - 1) });
    if (key === "ArrowRight") return goTo({ timeline: t.number, block: Math.min(last, i + 1) });
    if (key === "Home") return goTo({ timeline: t.number, block: low });
    if (key === "End") return goTo({ timeline: t.number, block: last });
    return stepRank(t, rank, (b.start[i] + b.end[i]) / 2, key === "ArrowUp" ? -1 : 1);
}

function stepRank(t, rank, time, by) {
    for (let r = rank + by, n = t.number;; r += by) {
        if (r < 0 || r >= timelines[n].ranks) {
            n += by;
            if (!timelines[n]) return;
            r = by > 0 ? 0 : timelines[n].ranks - 1;
        }
        const b = timelines[n].blocks, low = b.first[r], end = b.first[r + 1];
        if (low === end) continue;
        const i = Math.min(end - 1, firstAbove(b.end, low, end, time));
        goTo({ timeline: n, block: i });
        return;
    }
}

/* ------------------------------------------------------------------- search */

let matches = [], matchAt = -1;

/* 2F7, F7, 2F, SEND_F3, F: stage, kind, microbatch, any of them left out; or the
 * whole of a block's text. */
function search(text) {
    matches = [];
    matchAt = -1;
    const whole = text.replace(/\s/g, "").toUpperCase();
    const parsed = /^(\d*)([A-Z_]*)(\d*)$/.exec(whole);
    if (whole.startsWith("("))
        findBlocks((t, i) => t.blocks.second.has(i) && blockText(t, i) === whole);
    else if (parsed && whole)
        findParsed(parsed);
}

function findBlocks(fits) {
    for (const t of timelines)
        for (let i = 0; i < t.blocks.count; i++)
            if (fits(t, i)) matches.push({ timeline: t.number, block: i });
}

function findParsed([, stage, word, microbatch]) {
    const kind = KIND[word] ?? KIND[word.toLowerCase()];
    if (word && kind === undefined) return;
    const numbers = (s, m) =>
        (stage === "" || s === Number(stage)) && (microbatch === "" || m === Number(microbatch));
    const has = k => classOf(k) >= 0 || isOfMessage(k);
    const fits = (k, s, m) =>
        (kind === undefined || k === kind) && (microbatch === "" || has(k)) && numbers(s, m);
    findBlocks((t, i) => {
        const parts = partsOf(t, i);
        if (kind === KIND.OVERLAP_F_B)
            return parts.length === 2 && parts.some(([, s, m]) => numbers(s, m));
        return parts.some(part => fits(...part));
    });
    if (!word) return;
    for (const t of timelines) {
        const c = t.comms;
        for (let k = 0; k < c.count; k++)
            if (fits(c.kind[k], c.stage[k], c.microbatch[k]))
                matches.push({ timeline: t.number, block: k, comm: true });
    }
}

function seek(text) {
    view.find = text;
    search(text);
    foundText.textContent = text.trim() === "" ? ""
                            : matches.length   ? matches.length + " found"
                                               : "nothing";
    renew(MARKS);
}

function nextMatch(by) {
    if (!matches.length) {
        if (view.find.trim() !== "") said.textContent = "nothing found";
        return;
    }
    matchAt = (matchAt + by + matches.length + (matchAt < 0 && by < 0 ? 1 : 0)) % matches.length;
    foundText.textContent = matchAt + 1 + " of " + matches.length;
    goTo(matches[matchAt]);
}

/* ------------------------------------------------------------------ address */

const SWITCHES = ["path", "idle", "memory", "arrows"];
const usual = {...view }; /* as it is without an address */
let wantedTop = -1;       /* where to scroll to, once there is what to scroll */
let addressTimer = 0;

function addressOf() {
    const parts = [];
    if (!fitted) parts.push("from=" + view.from, "to=" + view.to);
    if (view.at) {
        const t = timelines[view.at.timeline], list = view.at.comm ? t.comms : t.blocks;
        const rank = list.rank[view.at.block];
        parts.push("at=" + [
            t.number, rank, (view.at.comm ? "c" : "b") + (view.at.block - list.first[rank])
        ].join("."));
    }
    if (view.follow !== null) parts.push("follow=" + view.follow);
    parts.push("show=" + SWITCHES.filter(name => view[name]).join("+"));
    if (timelines.length > 1) parts.push("layout=" + view.layout);
    if (view.rows !== 1) parts.push("rows=" + view.rows);
    if (view.theme) parts.push("theme=" + view.theme);
    if (view.find) parts.push("find=" + encodeURIComponent(view.find));
    if (host.scrollTop > 0) parts.push("top=" + Math.round(host.scrollTop));
    return "#" + parts.join("&");
}

function keepAddress() {
    clearTimeout(addressTimer);
    addressTimer = setTimeout(() => {
        if (location.hash !== addressOf()) history.replaceState(null, "", addressOf());
    }, 150);
}

function wholeNumber(text) {
    return /^\d+$/.test(text ?? "") ? Number(text) : -1;
}

function blockFrom(text) {
    const parts = /^(\d+)\.(\d+)\.([bc])(\d+)$/.exec(text ?? "");
    if (!parts) return null;
    const t = timelines[Number(parts[1])], rank = Number(parts[2]), comm = parts[3] === "c";
    if (!t || rank >= t.ranks) return null;
    const list = comm ? t.comms : t.blocks, block = list.first[rank] + Number(parts[4]);
    return block < list.first[rank + 1] ? { timeline: t.number, block, ...(comm ? { comm } : {}) }
                                        : null;
}

/* Reads the view from the address; invalid parts are ignored. */
function readAddress() {
    const found = {};
    for (const part of location.hash.slice(1).split("&")) {
        const at = part.indexOf("=");
        if (at <= 0) continue;
        try {
            found[part.slice(0, at)] = decodeURIComponent(part.slice(at + 1));
        } catch { /* not ours */
        }
    }
    const from = parseFloat(found.from), to = parseFloat(found.to);
    Object.assign(view, usual);
    if (found.show !== undefined)
        for (const name of SWITCHES) view[name] = found.show.split(/[+ ]/).includes(name);
    if (["stack", "beside"].includes(found.layout)) view.layout = found.layout;
    if (["light", "dark"].includes(found.theme)) view.theme = found.theme;
    const rows = parseFloat(found.rows);
    if (rows >= 0.25 && rows <= 8) view.rows = rows;
    wantedTop = Math.max(0, wholeNumber(found.top));
    if (Number.isFinite(from) && Number.isFinite(to) && to > from)
        setRange(from, to);
    else
        fit();
    const follow = wholeNumber(found.follow);
    view.follow = follow >= 0 && timelines.some(t => follow < t.microbatches) ? follow : null;
    view.at = blockFrom(found.at);
    findBox.value = found.find ?? "";
    seek(findBox.value);
    renew(BLOCKS | TABLES);
    showTip();
}

/* ------------------------------------------------------------------ buttons */

function showButtons() {
    for (const name of SWITCHES)
        document.getElementById(name).setAttribute("aria-pressed", String(view[name]));
    const layout = document.getElementById("layout");
    layout.hidden = timelines.length < 2;
    layout.textContent = view.layout === "beside" ? "One above the other" : "Side by side";
    document.getElementById("theme").textContent = isDark() ? "Light" : "Dark";
}

function toggle(name) {
    view[name] = !view[name];
    renew(CONTROLS);
}

const acts = {
    fit,
    closer: () => zoom(1 / 1.5),
    farther: () => zoom(1.5),
    path: () => toggle("path"),
    idle: () => toggle("idle"),
    memory: () => toggle("memory"),
    arrows: () => toggle("arrows"),
    layout() {
        view.layout = view.layout === "beside" ? "stack" : "beside";
        renew(CONTROLS);
    },
    theme() {
        view.theme = isDark() ? "light" : "dark";
        renew(TABLES);
    },
    help: () => document.getElementById("keys").showModal(),
};
for (const name in acts) document.getElementById(name).addEventListener("click", acts[name]);

const KEYS = {
    "+": acts.closer,
    "=": acts.closer,
    "-": acts.farther,
    _: acts.farther,
    0: fit,
    c: acts.path,
    i: acts.idle,
    m: acts.memory,
    a: acts.arrows,
    l() {
        if (timelines.length > 1) acts.layout();
    },
    t: acts.theme,
    "?": acts.help,
    n: () => nextMatch(1),
    N: () => nextMatch(-1),
    "/"() {
        findBox.focus();
        findBox.select();
    },
    Escape: letGo,
    "[": () => setRows(1 / 1.25),
    "]": () => setRows(1.25),
};

function setRows(factor) {
    view.rows = Math.min(8, Math.max(0.25, Math.round(view.rows * factor * 100) / 100));
    renew(CONTROLS);
}

addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("keys").open)
        return;
    if (event.target === findBox) {
        if (event.key === "Enter")
            nextMatch(event.shiftKey ? -1 : 1);
        else if (event.key === "Escape")
            host.focus();
        else
            return;
        event.preventDefault();
        return;
    }
    const arrows = /^(Arrow(Left|Right|Up|Down)|Home|End)$/.test(event.key),
          ours = event.target === host || event.target === document.body;
    if (arrows && ours) {
        if (!event.shiftKey)
            step(event.key);
        else if (event.key === "ArrowLeft")
            pan(-0.2);
        else if (event.key === "ArrowRight")
            pan(0.2);
        else if (event.key === "ArrowUp")
            host.scrollTop -= 80;
        else if (event.key === "ArrowDown")
            host.scrollTop += 80;
    } else if (event.key === "Enter" && ours && view.at)
        choose(view.at, true);
    else if (Object.hasOwn(KEYS, event.key))
        KEYS[event.key]();
    else
        return;
    event.preventDefault();
});
findBox.addEventListener("input", () => seek(findBox.value));

/* ------------------------------------------------------------------ pointer */

const touching = new Map(); /* pointers that are down, by id */
let drag = null, pinch = null;

host.addEventListener("wheel", event => {
    const panel = panelAt(event.clientX, event.clientY) ?? panels[0];
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
        pan((event.deltaX || event.deltaY) * lines / panel.w);
    else
        zoom(Math.exp(event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)),
             timeAt(panel, Math.max(event.clientX, host.getBoundingClientRect().left + panel.x)));
}, { passive: false });

function pinchOf() {
    const [a, b] = [...touching.values()];
    return {
        x: (a.x + b.x) / 2,
        y: (a.y + b.y) / 2,
        apart: Math.max(10, Math.hypot(a.x - b.x, a.y - b.y))
    };
}

host.addEventListener("pointerdown", event => {
    if (event.button !== 0) return;
    touching.set(event.pointerId, { x: event.clientX, y: event.clientY });
    host.setPointerCapture(event.pointerId);
    if (touching.size === 2) {
        pinch = pinchOf();
        drag = null;
    } else if (touching.size === 1)
        drag = {
            x: event.clientX,
            y: event.clientY,
            from: view.from,
            to: view.to,
            top: host.scrollTop,
            moved: false
        };
});

host.addEventListener("pointermove", event => {
    pointer = { x: event.clientX, y: event.clientY };
    if (touching.has(event.pointerId)) touching.set(event.pointerId, pointer);
    if (pinch && touching.size === 2) {
        const now = pinchOf(), panel = panelAt(now.x, now.y) ?? panels[0];
        const time = timeAt(panel, pinch.x), factor = pinch.apart / now.apart;
        zoom(factor, time);
        pan((pinch.x - now.x) / panel.w);
        pinch = now;
    } else if (drag) {
        const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
        if (!drag.moved && Math.hypot(dx, dy) < 4) return;
        drag.moved = true;
        host.classList.add("drags");
        hover(null);
        const panel = panels[0], by = dx / panel.w * (drag.to - drag.from);
        setRange(drag.from - by, drag.to - by);
        host.scrollTop = drag.top - dy;
    } else
        hover(pick(event.clientX, event.clientY));
});

function release(event) {
    touching.delete(event.pointerId);
    if (touching.size < 2) pinch = null;
    if (drag && !drag.moved && event.type === "pointerup") {
        const what = pick(event.clientX, event.clientY);
        if (what && what.block !== undefined)
            choose(what, true);
        else
            letGo();
        hovered = what;
        showTip();
    }
    drag = null;
    host.classList.remove("drags");
}
host.addEventListener("pointerup", release);
host.addEventListener("pointercancel", release);
host.addEventListener("pointerleave", () => hover(null));
host.addEventListener("scroll", () => renew(BLOCKS, true));

/* -------------------------------------------------------------------- start */

addEventListener("resize", () => renew(LAYOUT));
/* A scroll bar that appears or disappears changes the width without a resize
 * event. */
new ResizeObserver(() => {
    if (!printing && host.clientWidth !== wide) renew(LAYOUT);
}).observe(host);
addEventListener("hashchange", readAddress);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => renew(TABLES));

/* For printing: the light theme, all rows, twice the resolution. */
function setPrinting(on) {
    printing = on;
    chooseInk();
    layOut();
    showLegend();
    showSummary();
    drawBlocks(false);
    if (!on) renew(TABLES);
}
addEventListener("beforeprint", () => setPrinting(true));
addEventListener("afterprint", () => setPrinting(false));

readAddress();

/* For scripts that inspect the page. */
window.sluice = {
    about,
    timelines,
    view,
    pick,
    placeOf: (n, i, comm) => placeOf(panels.find(panel => panel.t.number === n), i, comm),
    describe: (n, i) => describe(timelines[n], i),
    frames: () => drawn,
    setRange,
    fit,
    blockText,
    commText
};
