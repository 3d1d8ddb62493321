"use strict";
/* Decodes the data of the page: names, colours and sums as JSON, blocks and
 * messages in the form of src/view/encode.h. Blocks become typed arrays, one
 * per field, with one entry per block, rank after rank; times are those of the
 * timeline. */

const about = JSON.parse(document.getElementById("about").textContent);

/* The classes of compute that others wait for, and W. */
const FORWARD = 0, BACKWARD = 1, WEIGHT = 2;
const KIND = {};
about.kinds.forEach((kind, number) => {
    if (kind.text) KIND[kind.text] = number;
});

function classOf(kind) {
    if (kind === KIND.F) return FORWARD;
    if (kind === KIND.B || kind === KIND.I) return BACKWARD;
    return kind === KIND.W ? WEIGHT : -1;
}

function fromBase64(text) {
    const values = new Uint8Array(128);
    const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (let i = 0; i < 64; i++) values[digits.charCodeAt(i)] = i;
    let length = text.length;
    while (length && text[length - 1] === "=") length--;
    const bytes = new Uint8Array(Math.floor(length * 3 / 4));
    for (let i = 0, o = 0; i < length; i += 4, o += 3) {
        const four = values[text.charCodeAt(i)] << 18 | values[text.charCodeAt(i + 1)] << 12 |
                     (i + 2 < length ? values[text.charCodeAt(i + 2)] << 6 : 0) |
                     (i + 3 < length ? values[text.charCodeAt(i + 3)] : 0);
        bytes[o] = four >> 16;
        bytes[o + 1] = four >> 8;
        bytes[o + 2] = four;
    }
    return bytes;
}

/* Reads LEB128; beyond 2^31 by arithmetic, because bit operations have 32
 * bits. */
function numbersOf(bytes) {
    let at = 0;
    return function next() {
        let byte = bytes[at++];
        if (byte < 128) return byte;
        let number = byte & 127, scale = 128;
        do {
            byte = bytes[at++];
            number += (byte & 127) * scale;
            scale *= 128;
        } while (byte >= 128);
        return number;
    };
}

function readTable(next, isSigned) {
    const table = new Float64Array(next());
    let value = 0;
    for (let i = 0; i < table.length; i++) {
        const step = next();
        if (!isSigned)
            value += step;
        else
            value += step % 2 ? -(step + 1) / 2 : step / 2;
        table[i] = value;
    }
    return table;
}

function columns(count, shapes) {
    const made = { count };
    for (const name in shapes) made[name] = new shapes[name](count);
    return made;
}

function readBlocks(t, next, times, bytes) {
    const b = t.blocks, c = t.comms;
    const time = ticks => (t.offset + ticks) * t.tick;
    for (let rank = 0, i = 0, k = 0; rank < t.ranks; rank++) {
        b.first[rank] = i;
        let now = 0, held = 0;
        for (let left = next(); left > 0; left--, i++) {
            const head = next(), kind = head & 31;
            b.kind[i] = kind;
            b.rank[i] = rank;
            b.critical[i] = head & 32 ? 1 : 0;
            b.stage[i] = next();
            b.microbatch[i] = next();
            if (kind === KIND.OVERLAP_F_B) b.second.set(i, [next(), next(), next()]);
            b.free[i] = b.ready[i] = time(now);
            if (head & 64) {
                const gap = times[next()];
                b.why[i] = next();
                b.ready[i] = time(now + times[next()]);
                now += gap;
            }
            b.start[i] = time(now);
            now += times[next()];
            b.end[i] = time(now);
            if (head & 128) {
                b.during[i] = held + bytes[next()];
                held = b.during[i] + bytes[next()];
            } else
                b.during[i] = held;
            b.after[i] = held;
        }
        c.first[rank] = k;
        now = 0;
        for (let left = next(); left > 0; left--, k++) {
            const head = next();
            c.kind[k] = head & 31;
            c.rank[k] = rank;
            c.critical[k] = head & 32 ? 1 : 0;
            c.stage[k] = next();
            c.microbatch[k] = next();
            c.peer[k] = next() - 1;
            c.peerStage[k] = next() - 1;
            c.edge[k] = next() - 1;
            c.bytes[k] = bytes[next()];
            now += times[next()];
            c.start[k] = time(now);
            const length = times[next()];
            c.end[k] = time(now + length);
            c.longest = Math.max(c.longest, length * t.tick);
        }
    }
    b.first[t.ranks] = b.count;
    c.first[t.ranks] = c.count;
}

function readMessages(t, next, times, bytes) {
    const m = t.messages;
    next();
    for (let i = 0, now = 0; i < m.count; i++) {
        m.forward[i] = next();
        m.fromRank[i] = next();
        m.toRank[i] = next();
        m.fromStage[i] = next();
        m.toStage[i] = next();
        m.microbatch[i] = next();
        m.edge[i] = next() - 1;
        m.bytes[i] = bytes[next()];
        now += times[next()];
        m.sent[i] = (t.offset + now) * t.tick;
        const length = times[next()];
        m.arrived[i] = (t.offset + now + length) * t.tick;
        m.longest = Math.max(m.longest, length * t.tick);
    }
}

/* ---------------------------------------------------------------- lookup */

/* Linked lists of entries by (class, stage, microbatch): in an array where that
 * is small, in a map where the numbers are sparse. */
function makeChains(t, count) {
    const size = 3 * t.stages * t.microbatches;
    const heads = size <= 1 << 23 ? new Int32Array(size).fill(-1) : new Map();
    const entry = new Int32Array(count), following = new Int32Array(count);
    let used = 0;
    const key = (cls, stage, microbatch) => (cls * t.stages + stage) * t.microbatches + microbatch;
    const head = k => (heads instanceof Map ? heads.get(k) ?? -1 : heads[k]);
    return {
        add(cls, stage, microbatch, value) {
            const k = key(cls, stage, microbatch);
            entry[used] = value;
            following[used] = head(k);
            if (heads instanceof Map)
                heads.set(k, used);
            else
                heads[k] = used;
            used++;
        },
        all(cls, stage, microbatch) {
            const found = [];
            if (stage < 0 || stage >= t.stages || microbatch < 0 || microbatch >= t.microbatches)
                return found;
            for (let i = head(key(cls, stage, microbatch)); i >= 0; i = following[i])
                found.push(entry[i]);
            return found.reverse();
        },
    };
}

/* The plain actions of a block: [kind, stage, microbatch], two of an overlap. */
function partsOf(t, i) {
    const b = t.blocks;
    if (b.kind[i] !== KIND.OVERLAP_F_B) return [[b.kind[i], b.stage[i], b.microbatch[i]]];
    return [[KIND.F, b.stage[i], b.microbatch[i]], b.second.get(i)];
}

function indexTimeline(t) {
    const b = t.blocks, m = t.messages;
    t.computes = makeChains(t, b.count + b.second.size);
    for (let i = 0; i < b.count; i++) {
        if (b.kind[i] === KIND.OVERLAP_F_B) {
            for (const [kind, stage, microbatch] of partsOf(t, i))
                t.computes.add(classOf(kind), stage, microbatch, i);
        } else if (classOf(b.kind[i]) >= 0) {
            t.computes.add(classOf(b.kind[i]), b.stage[i], b.microbatch[i], i);
        }
    }
    t.into = makeChains(t, m.count);
    t.outOf = makeChains(t, m.count);
    for (let i = 0; i < m.count; i++) {
        const cls = m.forward[i] ? FORWARD : BACKWARD;
        if (m.toStage[i] < t.stages) t.into.add(cls, m.toStage[i], m.microbatch[i], i);
        if (m.fromStage[i] < t.stages) t.outOf.add(cls, m.fromStage[i], m.microbatch[i], i);
    }
}

/* The block that computes a stage's microbatch, if possible on this rank; -1:
 * none. */
function findCompute(t, cls, stage, microbatch, rank) {
    const found = t.computes.all(cls, stage, microbatch);
    for (const i of found)
        if (t.blocks.rank[i] === rank) return i;
    return found.length ? found[0] : -1;
}

function readTimeline(meta, number) {
    const holder = document.getElementById("blocks-" + number);
    const next = numbersOf(fromBase64(holder.textContent));
    holder.remove();
    const times = readTable(next, false), bytes = readTable(next, true);
    const shared = {
        kind: Uint8Array,
        rank: Uint16Array,
        critical: Uint8Array,
        stage: Uint16Array,
        microbatch: Int32Array,
        start: Float64Array,
        end: Float64Array
    };
    const t = {...meta, number };
    t.blocks = columns(meta.blocks, {
        ...shared,
        why: Uint8Array,
        free: Float64Array,
        ready: Float64Array,
        during: Float64Array,
        after: Float64Array
    });
    t.blocks.second = new Map();
    t.comms = columns(meta.comms, {
        ...shared,
        peer: Int16Array,
        peerStage: Int32Array,
        edge: Int32Array,
        bytes: Float64Array
    });
    t.comms.longest = 0;
    t.messages = columns(meta.messages, {
        forward: Uint8Array,
        fromRank: Uint16Array,
        toRank: Uint16Array,
        fromStage: Uint16Array,
        toStage: Uint16Array,
        microbatch: Int32Array,
        edge: Int32Array,
        bytes: Float64Array,
        sent: Float64Array,
        arrived: Float64Array
    });
    t.messages.longest = 0;
    t.blocks.first = new Uint32Array(t.ranks + 1);
    t.comms.first = new Uint32Array(t.ranks + 1);
    readBlocks(t, next, times, bytes);
    readMessages(t, next, times, bytes);
    indexTimeline(t);
    return t;
}

const timelines = about.timelines.map(readTimeline);
const seconds = timelines.some(t => t.seconds);

/* Reasons by their names. */
const WHY = {};
about.whys.forEach((why, number) => { WHY[why.name] = number; });

/* The first of `low`..`high` whose value is not below `limit`. */
function firstFrom(values, low, high, limit) {
    while (low < high) {
        const middle = (low + high) >> 1;
        if (values[middle] >= limit)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The first of `low`..`high` whose value is above `limit`. */
function firstAbove(values, low, high, limit) {
    while (low < high) {
        const middle = (low + high) >> 1;
        if (values[middle] > limit)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
