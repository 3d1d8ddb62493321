/* Drawing. The blocks of a rank all have one height, so a rank is one line of
 * pixels, repeated: wide blocks are spans, and thin ones share the height of
 * each column of pixels in proportion to their time. Drawing half a million
 * blocks takes a few milliseconds; blocks outside the view are skipped. */

const host = document.getElementById("host"), sheet = document.getElementById("sheet");
const canvas = document.getElementById("blocks"), overlay = document.getElementById("marks");
const GUTTER = 60, HEAD = 40, RIGHT = 10;
const TALLEST_PAPER = 12000; /* browsers have no larger canvas than 16384 */

const view = {
    from: 0,
    to: 1,
    at: null,
    follow: null,
    find: "",
    path: false,
    idle: true,
    memory: true,
    arrows: false,
    layout: timelines.length > 1 && !measuredOne && innerWidth >= 760 ? "beside" : "stack",
    theme: "",
    rows: 1,
};
const whole = {
    from: Math.min(...timelines.map(t => t.begin)),
    to: Math.max(...timelines.map(t => t.end)),
};
if (!(whole.to > whole.from)) whole.to = whole.from + 1;

/* ----------------------------------------------------------------- colours */

function isDark() {
    if (printing) return false;
    return view.theme ? view.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/* #rrggbb as a pixel. */
function pixel(text) {
    const n = parseInt(text.slice(1), 16);
    return (255 << 24 | (n & 255) << 16 | (n & 0xff00) | n >> 16) >>> 0;
}

function mix(a, b, part) {
    let made = 255 << 24;
    for (let shift = 0; shift < 24; shift += 8) {
        const x = a >> shift & 255, y = b >> shift & 255;
        made |= Math.round(x + (y - x) * part) << shift;
    }
    return made >>> 0;
}

let ink = null; /* colours of the theme, as pixels and as text */
function chooseInk() {
    const dark = isDark();
    const back = pixel(dark ? "#14171b" : "#ffffff");
    ink = {
        back,
        row: pixel(dark ? "#191d22" : "#f7f8f9"),
        text: dark ? "#e6e9ed" : "#1b1f24",
        soft: dark ? "#9aa4b0" : "#5b6470",
        line: dark ? "#343a42" : "#d4d9df",
        accent: dark ? "#ff6fb1" : "#b00058",
        path: pixel(dark ? "#ff6fb1" : "#b00058"),
        over: pixel(dark ? "#ffffff" : "#000000"),
        less: pixel(dark ? "#c8f0ff" : "#7fe0ff"),
        memory: pixel(dark ? "#5f7f9c" : "#9fb8cd"),
        planned: pixel(dark ? "#e6e9ed" : "#1b1f24"),
        whys: about.whys.map(why => pixel(dark ? why.dark : why.light)),
        bright: about.looks.map(look => look.shades.map(pixel)),
    };
    ink.dim = ink.bright.map(shades => shades.map(c => mix(c, ink.row, 0.84)));
    document.documentElement.dataset.theme = dark ? "dark" : "light";
}

const lookOf = about.kinds.map(kind => kind.look);
const FORWARD_LOOK = lookOf[KIND.F];
const SHADES = about.looks[0].shades.length;

/* ------------------------------------------------------------------ layout */

let panels = [], printing = false, wide = 0, high = 0;

function columnCount() {
    return view.layout === "beside" && timelines.length > 1 ? 2 : 1;
}

function layOut() {
    const across = columnCount();
    wide = printing ? 1000 : host.clientWidth;
    const lines = Math.ceil(timelines.length / across);
    let rows = 0;
    for (let line = 0; line < lines; line++)
        rows += Math.max(...timelines.slice(line * across, (line + 1) * across).map(t => t.ranks));
    const room = (printing ? 600 : Math.max(240, innerHeight * 0.66)) - lines * HEAD;
    let rowHeight = Math.max(6, Math.round(Math.min(Math.max(room / rows, 10), 56) * view.rows));
    if (printing) rowHeight = Math.max(1, Math.min(rowHeight, Math.floor(TALLEST_PAPER / rows)));
    panels = [];
    let y = 0;
    for (let line = 0; line < lines; line++) {
        let tallest = 0;
        for (let column = 0; column < across; column++) {
            const t = timelines[line * across + column];
            if (!t) continue;
            const width = Math.floor(wide / across);
            const panel = {
                t,
                x: column * width + GUTTER,
                y,
                w: Math.max(40, width - GUTTER - RIGHT),
                row: rowHeight,
                hidden: 0
            };
            panel.memory = view.memory && panel.row >= 26 && t.tracks.some(track => track.peak > 0)
                               ? Math.floor(panel.row * 0.3)
                               : 0;
            panel.comm = t.comms.count && panel.row >= 18 ? 6 : 0;
            panel.lane =
                Math.max(1, panel.row - panel.memory - panel.comm - (panel.row >= 12 ? 3 : 1));
            panel.h = HEAD + panel.row * t.ranks;
            tallest = Math.max(tallest, panel.h);
            panels.push(panel);
        }
        y += tallest;
    }
    const shown = printing ? y : Math.min(y, Math.max(240, Math.round(innerHeight * 0.68)));
    high = shown;
    host.style.height = shown + "px";
    sheet.style.height = y + "px";
    const ratio = !printing ? devicePixelRatio || 1 : y > TALLEST_PAPER / 4 ? 1 : 2;
    for (const layer of [canvas, overlay]) {
        layer.width = Math.round(wide * ratio);
        layer.height = Math.round(shown * ratio);
        layer.style.width = wide + "px";
        layer.style.height = shown + "px";
    }
    overlay.style.marginTop = -shown + "px";
    peakScale = Math.max(
        1, ...timelines.map(t => t.tracks.reduce(
                                (most, track) => Math.max(most, track.peak, track.planned), 0)));
}
let peakScale = 1;

function rowTop(panel, rank) {
    return panel.y + HEAD + rank * panel.row - (printing ? 0 : host.scrollTop);
}

function xOf(panel, time) {
    return panel.x + (time - view.from) / (view.to - view.from) * panel.w;
}

/* Where a block is, in the page's pixels. */
function placeOf(panel, i, comm = false) {
    const list = comm ? panel.t.comms : panel.t.blocks;
    const box = host.getBoundingClientRect();
    const x = xOf(panel, list.start[i]), right = xOf(panel, list.end[i]);
    const y = rowTop(panel, list.rank[i]) + (comm ? panel.lane : 0);
    return { x: box.left + x, y: box.top + y, w: right - x, h: comm ? panel.comm : panel.lane };
}

/* ------------------------------------------------------------------- lines */

let line = null; /* scratch lines, as wide as the widest panel */
function scratch(width) {
    if (line && line.width >= width) return line;
    line = { width };
    for (const name of ["top", "low", "path", "over", "less"]) line[name] = new Uint32Array(width);
    line.bytes = new Float32Array(width);
    line.thin = about.looks.map(() => null); /* by look, once there are such */
    return line;
}

/* Blocks too thin to be seen one by one share a pixel: for each look, the part
 * of the pixel that they cover, and their colours. */
function thinOf(l, look) {
    l.thin[look] ??= {
        used: false,
        part: new Float32Array(l.width),
        red: new Float32Array(l.width),
        green: new Float32Array(l.width),
        blue: new Float32Array(l.width)
    };
    l.thin[look].used = true;
    return l.thin[look];
}

function addThin(l, look, x0, x1, w, share, colour) {
    const first = Math.max(0, Math.floor(x0)), last = Math.min(w - 1, Math.floor(x1));
    const thin = thinOf(l, look);
    for (let p = first; p <= last; p++) {
        const part = share * (Math.min(x1, p + 1) - Math.max(x0, p));
        if (part <= 0) continue;
        thin.part[p] += part;
        thin.red[p] += part * (colour & 255);
        thin.green[p] += part * (colour >> 8 & 255);
        thin.blue[p] += part * (colour >> 16 & 255);
    }
}

function clearThin(l, w) {
    for (const thin of l.thin) {
        if (!thin?.used) continue;
        thin.used = false;
        for (const name of ["part", "red", "green", "blue"]) thin[name].fill(0, 0, w);
    }
}

function paintColumn(x, fromRow, toRow, colour) {
    const to = Math.min(canvas.height, toRow), wide = canvas.width;
    for (let r = Math.max(0, fromRow); r < to; r++) pixels[r * wide + x] = colour;
}

/* The mean colour of a look's thin blocks in a pixel. */
function thinColour({ red, green, blue, part }, p) {
    const all = part[p];
    return (255 << 24 | blue[p] / all << 16 | green[p] / all << 8 | red[p] / all) >>> 0;
}

/* Thin blocks of one look are blended with the background. */
function paintAlone(l, thin, from, to, x, y, height) {
    const half = Math.ceil(height / 2);
    for (let p = from; p < to; p++) {
        if (!(thin.part[p] > 0)) continue;
        const colour = thinColour(thin, p), part = Math.min(1, thin.part[p]);
        paintColumn(x + p, y, y + half, mix(l.top[p], colour, part));
        paintColumn(x + p, y + half, y + height, mix(l.low[p], colour, part));
    }
}

/* Thin blocks of several looks are stacked, and share the height in proportion
 * to their time: if they were blended, the colour would be that of no look. */
function paintTogether(looks, from, to, x, y, height) {
    const sums = looks.map(() => 0), any = looks.map(() => 0);
    let columns = 0;
    for (let p = from; p < to; p++) {
        let some = false;
        for (let n = 0; n < looks.length; n++) {
            if (!(looks[n].part[p] > 0)) continue;
            sums[n] += looks[n].part[p];
            any[n] = p;
            some = true;
        }
        columns += some ? 1 : 0;
    }
    const all = Math.max(columns, sums.reduce((a, b) => a + b, 0));
    let reached = 0, row = 0;
    for (let n = 0; n < looks.length; n++) {
        const { part } = looks[n];
        reached += sums[n] / all * height;
        const end = Math.round(reached);
        for (let p = from; p < to; p++)
            if (looks.some(thin => thin.part[p] > 0))
                paintColumn(x + p, y + row, y + end,
                            thinColour(looks[n], part[p] > 0 ? p : any[n]));
        row = end;
    }
}

/* In steps of a few pixels. */
const THIN_GROUP = 4;
function paintThin(l, x, y, w, height) {
    const looks = l.thin.filter(thin => thin?.used);
    for (let from = 0; looks.length && from < w; from += THIN_GROUP) {
        const to = Math.min(w, from + THIN_GROUP);
        const here = looks.filter(({ part }) => {
            for (let p = from; p < to; p++)
                if (part[p] > 0) return true;
            return false;
        });
        if (here.length === 1)
            paintAlone(l, here[0], from, to, x, y, height);
        else if (here.length > 1)
            paintTogether(here, from, to, x, y, height);
    }
}

function fillGap(l, w, from, to, colour) {
    const a = Math.max(0, Math.round(from)), b = Math.min(w, Math.round(to));
    if (b > a) {
        l.top.fill(colour, a, b);
        l.low.fill(colour, a, b);
    }
}

function gapsInto(l, t, rank, low, high, w, k, from) {
    const b = t.blocks, last = b.first[rank + 1];
    for (let i = low; i <= high && i <= last; i++) {
        const drains = i === last;
        const free = Math.max(0, drains ? (i > b.first[rank] ? b.end[i - 1] : 0) : b.free[i]);
        const until = drains ? t.makespan : b.start[i];
        if (!(until > free) || (!drains && !b.why[i])) continue;
        const x0 = (free - from) * k, x1 = (until - from) * k;
        if (drains)
            fillGap(l, w, x0, x1, ink.whys[WHY.DRAIN]);
        else if (b.why[i] === WHY.FORWARD || b.why[i] === WHY.BACKWARD) {
            const ready = (b.ready[i] - from) * k;
            fillGap(l, w, x0, ready, ink.whys[b.why[i]]);
            fillGap(l, w, ready, x1, ink.whys[WHY.MESSAGE]);
        } else
            fillGap(l, w, x0, x1, ink.whys[b.why[i]]);
    }
}

/* Whether a block is too thin to be seen, or has few pixels and is next to such
 * a one. */
function isThin(b, i, k) {
    const width = (b.end[i] - b.start[i]) * k;
    if (width < 2 || width >= 4) return width < 2;
    return [i - 1, i + 1].some(n => b.rank[n] === b.rank[i] && (b.end[n] - b.start[n]) * k < 2);
}

/* One rank's blocks as lines of pixels. */
function lineOf(t, rank, w, k, from) {
    const l = scratch(w), b = t.blocks;
    const low = firstFrom(b.end, b.first[rank], b.first[rank + 1], from);
    const high = firstAbove(b.start, low, b.first[rank + 1], from + w / k);
    l.top.fill(ink.row, 0, w);
    l.low.fill(ink.row, 0, w);
    l.path.fill(0, 0, w);
    l.over.fill(0, 0, w);
    l.less.fill(0, 0, w);
    clearThin(l, w);
    if (view.idle) gapsInto(l, t, rank, low, high, w, k, from);
    const { bright, dim } = ink, follow = view.follow, compares = t === measuredOne && plannedOne;
    for (let i = low; i < high; i++) {
        const x0 = (b.start[i] - from) * k, x1 = (b.end[i] - from) * k;
        const kind = b.kind[i], microbatch = b.microbatch[i];
        const look = kind === KIND.OVERLAP_F_B ? FORWARD_LOOK : lookOf[kind];
        let top, bottom, lowLook = look;
        if (kind === KIND.OVERLAP_F_B) {
            const [kind2, , microbatch2] = b.second.get(i);
            lowLook = lookOf[kind2];
            top = (follow === null || microbatch === follow ? bright : dim)[look];
            bottom = (follow === null || microbatch2 === follow ? bright : dim)[lowLook];
            top = top[microbatch % SHADES];
            bottom = bottom[microbatch2 % SHADES];
        } else {
            const follows = follow === null || (microbatch === follow && classOf(kind) >= 0);
            top = bottom = (follows ? bright : dim)[look][microbatch % SHADES];
        }
        if (!isThin(b, i, k)) {
            const a = Math.max(0, Math.round(x0)),
                  z = Math.max(0, Math.min(w, Math.round(x1) - (x1 - x0 > 4 ? 1 : 0)));
            l.top.fill(top, a, z);
            l.low.fill(bottom, a, z);
        } else if (lowLook === look)
            addThin(l, look, x0, x1, w, 1, top);
        else {
            addThin(l, look, x0, x1, w, 0.5, top);
            addThin(l, lowLook, x0, x1, w, 0.5, bottom);
        }
        if (view.path && b.critical[i])
            l.path.fill(1, Math.max(0, Math.floor(x0)),
                        Math.min(w, Math.max(Math.floor(x0) + 1, Math.round(x1))));
        if (compares && x1 - x0 >= 3) {
            const planned = plannedLength(t, i), took = b.end[i] - b.start[i];
            const left = Math.max(0, Math.round(x0)), right = Math.min(w, Math.round(x1));
            if (took > 1.1 * planned)
                l.over.fill(1, Math.max(0, Math.round(x0 + planned * k)), right);
            else if (took < 0.9 * planned)
                l.less.fill(1, left, right);
        }
    }
    return l;
}

/* ------------------------------------------------------------------- rows */

let image = null, pixels = null;

function paint(l, x, y, w, fromRow, toRow) {
    for (let r = Math.max(0, y + fromRow); r < Math.min(canvas.height, y + toRow); r++)
        pixels.set(l.subarray(0, w), r * canvas.width + x);
}

function paintWhere(flags, colour, x, y, w, fromRow, toRow, slant) {
    for (let r = Math.max(0, y + fromRow); r < Math.min(canvas.height, y + toRow); r++) {
        const row = r * canvas.width + x;
        for (let p = 0; p < w; p++)
            if (flags[p] && (!slant || (p + r) % slant === 0)) pixels[row + p] = colour;
    }
}

function paintComms(t, rank, x, y, w, k, from, height) {
    const l = scratch(w), c = t.comms, half = Math.floor(height / 2);
    const low = firstFrom(c.start, c.first[rank], c.first[rank + 1], from - c.longest);
    const high = firstAbove(c.start, low, c.first[rank + 1], from + w / k);
    l.top.fill(ink.row, 0, w);
    l.low.fill(ink.row, 0, w);
    for (let i = low; i < high; i++) {
        const x0 = (c.start[i] - from) * k, x1 = (c.end[i] - from) * k;
        if (x1 < 0) continue;
        const a = Math.max(0, Math.floor(x0)),
              z = Math.min(w, Math.max(Math.floor(x0) + 1, Math.round(x1)));
        const sends = c.kind[i] === KIND.SEND_F || c.kind[i] === KIND.SEND_B;
        const follows = view.follow === null || c.microbatch[i] === view.follow;
        const colour = view.path && c.critical[i]
                           ? ink.path
                           : (follows ? ink.bright : ink.dim)[lookOf[c.kind[i]]][c.microbatch[i] % SHADES];
        (sends ? l.top : l.low).fill(colour, a, z);
    }
    paint(l.top, x, y, w, 0, half);
    paint(l.low, x, y, w, half, height);
}

function paintMemory(t, rank, x, y, w, k, from, height) {
    const l = scratch(w), b = t.blocks, held = l.bytes, track = t.tracks[rank];
    const end = b.first[rank + 1];
    let i = Math.max(b.first[rank], firstFrom(b.end, b.first[rank], end, from) - 1);
    held.fill(0, 0, w);
    for (; i < end && b.start[i] <= from + w / k; i++) {
        const x0 = (b.start[i] - from) * k, x1 = (b.end[i] - from) * k;
        const next = i + 1 < end ? (b.start[i + 1] - from) * k : x1;
        for (let p = Math.max(0, Math.floor(x0)); p <= Math.min(w - 1, Math.floor(x1)); p++)
            if (b.during[i] > held[p]) held[p] = b.during[i];
        for (let p = Math.max(0, Math.floor(x1) + 1); p < Math.min(w, next); p++)
            if (b.after[i] > held[p]) held[p] = b.after[i];
    }
    const planned = track.planned > 0
                        ? height - Math.max(1, Math.round(track.planned / peakScale * (height - 1)))
                        : -1;
    for (let row = 0; row < height; row++) {
        const r = y + row;
        if (r < 0 || r >= canvas.height) continue;
        const level = (height - row - 0.5) / (height - 1) * peakScale, at = r * canvas.width + x;
        for (let p = 0; p < w; p++) pixels[at + p] = held[p] > level ? ink.memory : ink.row;
        if (row === planned)
            for (let p = 0; p < w; p += 6)
                pixels.fill(ink.planned, at + p, at + Math.min(w, p + 3));
    }
}

function paintRows(panel, ratio) {
    const t = panel.t, x = Math.round(panel.x * ratio), w = Math.round(panel.w * ratio);
    const from = view.from, k = w / (view.to - view.from);
    const lane = Math.max(1, Math.round(panel.lane * ratio)), comm = Math.round(panel.comm * ratio),
          memory = Math.round(panel.memory * ratio);
    for (let rank = 0; rank < t.ranks; rank++) {
        const top = rowTop(panel, rank), y = Math.round(top * ratio);
        if (top + panel.row < 0 || top > high) continue;
        const l = lineOf(t, rank, w, k, from);
        const half = Math.ceil(lane / 2);
        paint(l.top, x, y, w, 0, half);
        paint(l.low, x, y, w, half, lane);
        paintThin(l, x, y, w, lane);
        /* Stripes leave the middle free for labels. */
        const edge = panel.lane >= 20 ? Math.round(lane * 0.28) : half;
        paintWhere(l.over, ink.over, x, y, w, 0, edge, 4);
        paintWhere(l.over, ink.over, x, y, w, lane - edge, lane, 4);
        paintWhere(l.less, ink.less, x, y, w, 0, Math.max(1, Math.round(2 * ratio)), 0);
        if (view.path)
            paintWhere(l.path, ink.path, x, y, w, lane - Math.max(2, Math.round(lane * 0.16)), lane,
                       0);
        if (comm) paintComms(t, rank, x, y + lane, w, k, from, comm);
        if (memory) paintMemory(t, rank, x, y + lane + comm, w, k, from, memory);
    }
}

/* -------------------------------------------------------------------- text */

/* A title, cut short so that it fits with what follows it; what follows is left
 * out if it still does not fit. */
function fittingText(context, title, rest, width) {
    const fits = text => context.measureText(text).width <= width;
    for (const end of [rest, ""])
        for (let kept = title.length; kept >= Math.min(8, title.length); kept--) {
            const text = (kept < title.length ? title.slice(0, kept) + "…" : title) + end;
            if (fits(text)) return text;
        }
    return "";
}

function drawAxis(context, panel) {
    const top = panel.y - (printing ? 0 : host.scrollTop), span = view.to - view.from;
    if (top + HEAD < 0 || top > high) return;
    context.fillStyle = ink.text;
    context.font = "600 13px system-ui, 'DejaVu Sans', sans-serif";
    context.textAlign = "left";
    const t = panel.t;
    const facts = ": makespan " + timeText(t.makespan) + ", bubble " + percent(t.bubble);
    const hidden = panel.hidden ? "; " + panel.hidden + " messages: zoom in to see them" : "";
    context.fillText(fittingText(context, t.title, facts + hidden, panel.w), panel.x, top + 15);
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    context.fillStyle = ink.soft;
    context.strokeStyle = ink.line;
    const step = niceStep(span / Math.max(2, panel.w / 90));
    context.beginPath();
    for (let n = Math.ceil(view.from / step); n * step <= view.to; n++) {
        const x = Math.round(xOf(panel, n * step)) + 0.5;
        context.moveTo(x, top + HEAD - 6);
        context.lineTo(x, top + HEAD);
        context.textAlign = "center";
        const scale = Math.max(Math.abs(view.from), Math.abs(view.to), step);
        context.fillText(n === 0 ? "0" : pointText(n * step, scale, step / 10), x, top + HEAD - 10);
    }
    context.stroke();
    context.textAlign = "right";
    if (!seconds) context.fillText("units", panel.x - 12, top + HEAD - 10);
}

function drawRanks(context, panel) {
    context.fillStyle = ink.soft;
    context.textAlign = "right";
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    const every = Math.ceil(11 / panel.row);
    for (let rank = 0; rank < panel.t.ranks; rank += every) {
        const y = rowTop(panel, rank);
        if (y + panel.row < 0 || y > high) continue;
        context.fillText((panel.row >= 13 ? "rank " : "") + rank, panel.x - 6,
                         y + Math.min(panel.lane, panel.row) / 2 + 4);
    }
}

const MOST_LABELS_MOVING = 1200;

function drawLabels(context, panel, moving) {
    if (panel.lane < 10) return;
    const t = panel.t, b = t.blocks, k = panel.w / (view.to - view.from);
    const size = Math.min(12, Math.max(9, panel.lane * 0.6)), letter = size * 0.6;
    context.font = size + "px system-ui, 'DejaVu Sans', sans-serif";
    context.textAlign = "center";
    const found = [];
    for (let rank = 0; rank < t.ranks; rank++) {
        const y = rowTop(panel, rank);
        if (y + panel.row < 0 || y > high) continue;
        const low = firstAbove(b.end, b.first[rank], b.first[rank + 1], view.from);
        const end = firstAbove(b.start, low, b.first[rank + 1], view.to);
        if ((end - low) > panel.w / letter) continue;
        for (let i = low; i < end; i++)
            if ((b.end[i] - b.start[i]) * k >= letter + 4) found.push(i, y);
    }
    if (moving && found.length / 2 > MOST_LABELS_MOVING) return;
    for (let n = 0; n < found.length; n += 2)
        drawLabel(context, panel, found[n], found[n + 1], k, size);
}

/* How wide a label is, from what its letters measure. */
const widths = new Map();
function widthOf(context, text, size) {
    let sum = 0;
    for (const letter of text) {
        if (!widths.has(letter)) {
            const font = context.font;
            context.font = "100px system-ui, 'DejaVu Sans', sans-serif";
            widths.set(letter, context.measureText(letter).width / 100);
            context.font = font;
        }
        sum += widths.get(letter);
    }
    return sum * size;
}

function drawLabel(context, panel, i, y, k, size) {
    const b = panel.t.blocks;
    const left = Math.max(panel.x, xOf(panel, b.start[i])),
          right = Math.min(panel.x + panel.w, xOf(panel, b.end[i]));
    const parts = partsOf(panel.t, i), room = right - left - 3;
    parts.forEach(([kind, stage, microbatch], n) => {
        const texts = [actionText(kind, stage, microbatch)];
        if (classOf(kind) >= 0) texts.push(String(microbatch));
        const text = texts.find(one => widthOf(context, one, size) <= room);
        if (!text) return;
        const follows = view.follow === null || microbatch === view.follow;
        const white = about.looks[lookOf[kind]].white[microbatch % SHADES];
        context.fillStyle = !follows ? ink.soft : white ? "#ffffff" : "#101010";
        const middle = parts.length === 1 ? 0.5 : n ? 0.75 : 0.25;
        if (parts.length === 1 || panel.lane >= 2 * size)
            context.fillText(text, (left + right) / 2, y + panel.lane * middle + size * 0.36);
    });
}

/* ------------------------------------------------------------------- frame */

let drawn = 0; /* frames */
function drawBlocks(moving) {
    const context = canvas.getContext("2d", { willReadFrequently: true }),
          ratio = canvas.width / wide;
    if (!canvas.width || !canvas.height) return;
    if (!image || image.width !== canvas.width || image.height !== canvas.height) {
        image = context.createImageData(canvas.width, canvas.height);
        pixels = new Uint32Array(image.data.buffer);
    }
    pixels.fill(ink.back);
    for (const panel of panels) paintRows(panel, ratio);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.putImageData(image, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    for (const panel of panels) {
        drawAxis(context, panel);
        drawRanks(context, panel);
        drawLabels(context, panel, moving);
    }
    if (!drawn++) performance.mark("drawn");
}

function outline(context, panel, i, colour, width) {
    const b = panel.t.blocks;
    const x = xOf(panel, b.start[i]), right = xOf(panel, b.end[i]), y = rowTop(panel, b.rank[i]);
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.strokeRect(x - 0.5, y - 0.5, Math.max(2, right - x) + 1, panel.lane + 1);
}

function arrow(context, panel, fromTime, fromRank, toTime, toRank, colour) {
    const x0 = xOf(panel, fromTime), x1 = xOf(panel, toTime);
    const y0 = rowTop(panel, fromRank) + panel.lane / 2,
          y1 = rowTop(panel, toRank) + panel.lane / 2;
    if (Math.max(x0, x1) < panel.x - 20 || Math.min(x0, x1) > panel.x + panel.w + 20) return;
    const bend = Math.max(12, Math.abs(x1 - x0) / 2);
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    context.stroke();
    context.beginPath();
    context.moveTo(x1 + 1, y1);
    context.lineTo(x1 - 6, y1 - 3.5);
    context.lineTo(x1 - 6, y1 + 3.5);
    context.fill();
}

const MOST_ARROWS = 1500;

/* Arrows of the visible messages, of one microbatch or of all. If there are so
 * many that they would hide everything, the panel's head has their number
 * instead. */
function drawMessages(context, panel, microbatch) {
    const m = panel.t.messages, shown = [];
    const first = firstFrom(m.sent, 0, m.count, view.from - m.longest);
    for (let k = first; k < m.count && m.sent[k] <= view.to; k++) {
        if (microbatch !== null && m.microbatch[k] !== microbatch) continue;
        if (m.arrived[k] >= view.from) shown.push(k);
    }
    if (shown.length > MOST_ARROWS) return shown.length;
    for (const k of shown)
        arrow(context, panel, m.sent[k], m.fromRank[k], m.arrived[k], m.toRank[k], ink.soft);
    return 0;
}

function drawMarks() {
    const context = overlay.getContext("2d"), ratio = overlay.width / wide;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, overlay.width, overlay.height);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    for (const panel of panels) {
        context.save();
        context.beginPath();
        context.rect(panel.x - 2, panel.y + HEAD - 2 - (printing ? 0 : host.scrollTop), panel.w + 4,
                     panel.h);
        context.clip();
        const hidden =
            view.arrows || view.follow !== null ? drawMessages(context, panel, view.follow) : 0;
        if (hidden !== panel.hidden) {
            panel.hidden = hidden;
            renew(BLOCKS);
        }
        drawLit(context, panel);
        context.restore();
    }
}

/* Highlights the block under the pointer or the selected one, and its
 * dependencies. */
function drawLit(context, panel) {
    const lit = hovered ?? view.at;
    if (!lit || lit.comm || lit.block === undefined) return;
    const t = timelines[lit.timeline];
    const twin = twinOf(t, lit.block);
    if (twin && twin[0] === panel.t) outline(context, panel, twin[1], ink.accent, 2);
    if (t !== panel.t) return;
    const b = t.blocks, { needs, gives } = linksOf(t, lit.block);
    for (const [links, into] of [[needs, true], [gives, false]]) {
        for (const { block, message } of links) {
            outline(context, panel, block, ink.text, 1.5);
            const [from, to] = into ? [block, lit.block] : [lit.block, block];
            if (message >= 0)
                arrow(context, panel, b.end[from], b.rank[from], b.start[to], b.rank[to],
                      ink.accent);
        }
    }
    outline(context, panel, lit.block, ink.accent, 2.5);
}
