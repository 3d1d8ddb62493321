/* Numbers, actions and reasons in words. */

/* The smallest step for a scale that is at least `atLeast`: 1, 2 or 5 times a
 * power of ten. */
function niceStep(atLeast) {
    const power = Math.pow(10, Math.floor(Math.log10(atLeast)));
    for (const factor of [1, 2, 5, 10])
        if (factor * power >= atLeast * (1 - 1e-9)) return factor * power;
    return 10 * power;
}

const SECONDS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

/* All timelines of a page have the same units: times are seconds, or units of
 * the costs; memory is bytes, or numbers of microbatches. */
const counted = timelines.every(t => t.microbatchBytes > 0 &&
                                     t.microbatchBytes === timelines[0].microbatchBytes);
const sized = timelines.some(t => t.sized);

function trimmed(number, digits) {
    if (!Number.isFinite(number)) return String(number);
    const text = number.toPrecision(digits);
    return text.includes("e")   ? String(Number(text))
           : text.includes(".") ? text.replace(/\.?0+$/, "")
                                : text;
}

/* Three digits, or as many as are left of the point. */
function short(number) {
    const size = Math.abs(number);
    return size >= 1e3 && size < 1e7 ? number.toFixed(0) : trimmed(number, 3);
}

function counting(text, one, many = one + "s") {
    return text + " " + (text === "1" ? one : many);
}

/* How long something took. */
function timeText(time) {
    if (!seconds) return counting(short(time), "unit");
    const size = Math.abs(time);
    if (size < 0.5e-9) return "0 s";
    const [unit, name] = SECONDS.find(([one]) => size >= 0.9995 * one) ?? SECONDS[3];
    return short(time / unit) + " " + name;
}

/* A time in the unit that fits `scale`, with enough digits to distinguish times
 * `resolution` apart. The unit of costs has no name. */
function pointText(time, scale, resolution) {
    if (!seconds) return trimmed(time, 10);
    if (Math.abs(time) < 0.5e-9) return "0";
    const [unit, name] = SECONDS.find(([size]) => scale >= size) ?? SECONDS[3];
    const digits = Math.ceil(Math.log10(Math.abs(time) / Math.max(resolution, 1e-10))) + 1;
    return trimmed(time / unit, Math.min(15, Math.max(3, digits))) + " " + name;
}

/* A span from start to end, in the unit that fits the timeline. */
function spanText(t, start, end) {
    const fine = end > start ? end - start : t.makespan / 1e3;
    const unit = seconds ? "" : " units";
    if (end === start) return "at " + pointText(start, t.makespan, fine) + unit;
    return pointText(start, t.makespan, fine) + " to " + pointText(end, t.makespan, fine) + unit;
}

function bytesText(bytes) {
    for (const [size, name] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
        if (Math.abs(bytes) >= 0.9995 * size) return short(bytes / size) + " " + name;
    return bytes + " B";
}

/* What ranks hold between forward and backward. */
function memoryText(t, bytes) {
    return counted ? counting(short(bytes / t.microbatchBytes), "microbatch", "microbatches")
                   : bytesText(bytes);
}

/* At most three digits, and hundredths at most. */
function percent(part) {
    const size = Math.abs(100 * part);
    if (size < 1e-5) return "0 %";
    if (size < 0.005) return "< 0.01 %";
    return trimmed(Math.round(1e4 * part) / 100, 3) + " %";
}

/* Whether the kind is a send, a receive, or a wait for a send. */
function isOfMessage(kind) {
    return /(SEND|RECV)_[FB]$/.test(about.kinds[kind].text);
}

function actionText(kind, stage, microbatch) {
    const text = about.kinds[kind].text;
    if (kind >= KIND.copy) return text;
    return classOf(kind) >= 0 || isOfMessage(kind) ? stage + text + microbatch : stage + text;
}

function blockText(t, i) {
    const b = t.blocks;
    if (b.kind[i] === KIND.OVERLAP_F_B)
        return "(" + partsOf(t, i).map(part => actionText(...part)).join(";") + ")OVERLAP_F_B";
    if (b.kind[i] === KIND.ties || b.kind[i] === KIND.data) return about.kinds[b.kind[i]].text;
    if (b.kind[i] >= KIND.copy) return about.kinds[b.kind[i]].text + " of stage " + b.stage[i];
    return actionText(b.kind[i], b.stage[i], b.microbatch[i]);
}

function commText(t, k) {
    const c = t.comms;
    return actionText(c.kind[k], c.stage[k], c.microbatch[k]);
}

/* ------------------------------------------------------- what needs what */

/* The blocks that a block needs, and those that need it, in the same timeline,
 * with the messages between them. */
function linksOf(t, i) {
    const needs = [], gives = [], b = t.blocks, m = t.messages;
    const push = (list, block, message = -1) => {
        if (block >= 0 && block !== i &&
            !list.some(link => link.block === block && link.message === message))
            list.push({ block, message });
    };
    for (const [kind, stage, microbatch] of partsOf(t, i)) {
        const cls = classOf(kind), rank = b.rank[i];
        if (cls < 0) continue;
        if (cls === WEIGHT) {
            push(needs, findCompute(t, BACKWARD, stage, microbatch, rank));
            continue;
        }
        const step = cls === FORWARD ? -1 : 1;
        const arriving = t.into.all(cls, stage, microbatch).filter(k => m.toRank[k] === rank);
        for (const k of arriving)
            push(needs, findCompute(t, cls, m.fromStage[k], microbatch, m.fromRank[k]), k);
        if (!arriving.length) push(needs, findCompute(t, cls, stage + step, microbatch, rank));
        const leaving = t.outOf.all(cls, stage, microbatch).filter(k => m.fromRank[k] === rank);
        for (const k of leaving)
            push(gives, findCompute(t, cls, m.toStage[k], microbatch, m.toRank[k]), k);
        if (!leaving.length) push(gives, findCompute(t, cls, stage - step, microbatch, rank));
        if (cls === FORWARD)
            push(gives, findCompute(t, BACKWARD, stage, microbatch, rank));
        else
            push(needs, findCompute(t, FORWARD, stage, microbatch, rank));
        if (kind === KIND.I) push(gives, findCompute(t, WEIGHT, stage, microbatch, rank));
    }
    return { needs, gives };
}

/* For an action of a run, the same action in its plan, and the other way round:
 * [timeline, block], or null. */
const measuredOne = timelines[about.run];
const plannedOne = timelines[about.plan];
function twinOf(t, i) {
    if (!plannedOne || (t !== measuredOne && t !== plannedOne)) return null;
    const other = t === measuredOne ? plannedOne : measuredOne;
    const [kind, stage, microbatch] = partsOf(t, i)[0];
    if (classOf(kind) < 0) return null;
    const j = findCompute(other, classOf(kind), stage, microbatch, t.blocks.rank[i]);
    return j < 0 ? null : [other, j];
}

/* How long it was planned to take; NaN where that is not known. */
function plannedLength(t, i) {
    const twin = t === measuredOne ? twinOf(t, i) : null;
    if (!twin || twin[0].blocks.kind[twin[1]] !== t.blocks.kind[i]) return NaN;
    return twin[0].blocks.end[twin[1]] - twin[0].blocks.start[twin[1]];
}

/* --------------------------------------------------------------- sentences */

const MEANS = {
    F: "forward",
    B: "backward",
    I: "backward for inputs",
    W: "backward for weights"
};

/* What only runs have. */
const OWN_MEANS = {
    copy: "arguments in, outputs out, between stages of the rank",
    pack: "weights into the layout that kernels like, once a step",
    ties: "tied gradients are summed, with the wait for whoever else has them",
    data: "the batch is read",
    WAIT_SEND_F: "until the next stage has received what was sent",
    WAIT_SEND_B: "until the stage before has received what was sent",
    WAIT_REDUCE_GRAD: "until the reduction is done",
};

function headOf(t, i) {
    const b = t.blocks;
    const parts =
        partsOf(t, i)
            .filter(([kind]) => classOf(kind) >= 0)
            .map(([kind, stage, microbatch]) => MEANS[about.kinds[kind].text] + " of stage " +
                                                stage + ", microbatch " + microbatch);
    const own = OWN_MEANS[about.kinds[b.kind[i]].text] ?? "";
    return [blockText(t, i) + " on rank " + b.rank[i], parts.join(", and at once ") || own];
}

function idleText(t, i) {
    const b = t.blocks, why = b.why[i], from = Math.max(b.free[i], 0);
    const whole = b.start[i] - from;
    if (!why || !(whole > 0)) return "";
    if (why === WHY.FORWARD || why === WHY.BACKWARD) {
        const waited = b.ready[i] - from, message = b.start[i] - b.ready[i];
        const needs = linksOf(t, i).needs.filter(link => b.rank[link.block] !== b.rank[i]);
        const late = needs.sort((x, y) => b.end[y.block] - b.end[x.block])[0];
        const whom =
            late ? blockText(t, late.block) + " on rank " + b.rank[late.block] : "another rank";
        return "waited " + timeText(waited) + " for " + whom +
               (message > 0 ? ", then " + timeText(message) + " for its message" : "");
    }
    return "idle " + timeText(whole) + " before it: " + about.whys[why].text;
}

function messageText(t, k, arriving) {
    const m = t.messages;
    const other = arriving ? "message from rank " + m.fromRank[k] + " (" +
                                 (m.forward[k] ? "output" : "gradient") + " of stage " +
                                 m.fromStage[k] + ")"
                           : "sends to rank " + m.toRank[k] + " (stage " + m.toStage[k] + ")";
    return other + ": " + (sized ? bytesText(m.bytes[k]) + ", " : "") + "under way " +
           spanText(t, m.sent[k], m.arrived[k]);
}

/* The text about a block, in lines; the first is its name. */
function describe(t, i) {
    const b = t.blocks, [name, meaning] = headOf(t, i), lines = [name];
    if (meaning) lines.push(meaning);
    lines.push(spanText(t, b.start[i], b.end[i]) + ", took " + timeText(b.end[i] - b.start[i]));
    const idle = idleText(t, i);
    lines.push(idle || "began as soon as the rank was free");
    const links = linksOf(t, i);
    for (const link of links.needs.slice(0, 4))
        if (link.message >= 0) lines.push(messageText(t, link.message, true));
    for (const link of links.gives.slice(0, 4))
        if (link.message >= 0) lines.push(messageText(t, link.message, false));
    if (t.tracks[b.rank[i]].peak > 0)
        lines.push("in flight " + memoryText(t, b.during[i]) + ", after it " +
                   memoryText(t, b.after[i]));
    const twin = twinOf(t, i);
    if (twin) {
        const [o, j] = twin, later = b.start[i] - o.blocks.start[j];
        const word = (t.measured ? "planned" : "measured") +
                     (o.plan || o.measured ? "" : " (" + o.title + ")");
        const shift = Math.abs(later);
        const took = (b.end[i] - b.start[i]) / (o.blocks.end[j] - o.blocks.start[j]);
        const began = shift > 1e-12 * t.makespan
                          ? timeText(shift) + (later > 0 ? " later" : " earlier")
                          : "at the same time";
        lines.push(word + " " + spanText(o, o.blocks.start[j], o.blocks.end[j]) + ": this began " +
                   began +
                   (o.blocks.kind[j] === b.kind[i] && Number.isFinite(took)
                        ? " and took " + short(took) + " times as long"
                        : ""));
    }
    if (b.critical[i]) lines.push("on the critical path");
    return lines;
}

function describeComm(t, k) {
    const c = t.comms;
    const lines = [commText(t, k) + " on rank " + c.rank[k]];
    const sends = /^SEND/.test(about.kinds[c.kind[k]].text);
    if (c.peer[k] >= 0)
        lines.push((sends ? "to" : "from") + " rank " + c.peer[k] + ", stage " + c.peerStage[k] +
                   (sized ? ": " + bytesText(c.bytes[k]) : ""));
    lines.push(spanText(t, c.start[k], c.end[k]) + ", took " + timeText(c.end[k] - c.start[k]));
    if (c.critical[k]) lines.push("on the critical path");
    return lines;
}

/* The text about the gap before block i, or after the last block (i is the
 * rank's end). */
function describeGap(t, rank, i) {
    const b = t.blocks, last = i === b.first[rank + 1];
    if (last) {
        const free = i > b.first[rank] ? b.end[i - 1] : 0;
        if (!(t.makespan > free)) return null;
        return [
            "rank " + rank + " is idle", timeText(t.makespan - free) + ": drain",
            "its work is done; others still have some"
        ];
    }
    const from = Math.max(b.free[i], 0);
    if (!b.why[i] || !(b.start[i] > from)) return null;
    const lines = [
        "rank " + rank + " is idle",
        spanText(t, from, b.start[i]) + ": " + about.whys[b.why[i]].text
    ];
    const idle = idleText(t, i);
    if (b.why[i] === WHY.WARM_UP)
        lines.push("nothing has reached it yet; it begins with " + blockText(t, i));
    else if (idle)
        lines.push(blockText(t, i) + " " + idle);
    return lines;
}
