/* The loss curve of a training run, as SVG, so that it has the theme's colours
 * and can be printed. */

const CHART = {
    wide: 620,
    high: 230,
    left: 46,
    right: 12,
    top: 10,
    bottom: 38
};

function draw(tag, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    made.append(...children);
    return made;
}

/* About `count` round numbers between two numbers. */
function ticksOf(from, to, count, least = 0) {
    const step = Math.max(least, niceStep((to - from) / count)), ticks = [];
    for (let n = Math.ceil(from / step); n * step <= to * (1 + 1e-9); n++)
        ticks.push(Number((n * step).toPrecision(12)));
    return ticks;
}

function lossChart() {
    const { loss, validation } = about.curve, all = [...loss, ...validation];
    const c = CHART, steps = all.flatMap(([first, last]) => [first, last]);
    const values = all.map(([, , value]) => value);
    const least = (list) => list.reduce((a, b) => Math.min(a, b), Infinity);
    const greatest = (list) => list.reduce((a, b) => Math.max(a, b), -Infinity);
    let [x0, x1, y0, y1] = [least(steps), greatest(steps), least(values), greatest(values)];
    if (!(x1 > x0)) [x0, x1] = [x0 - 1, x1 + 1];
    const margin = (y1 - y0) * 0.05 || Math.abs(y0) * 0.05 || 1;
    [y0, y1] = [y0 - margin, y1 + margin];
    const x = step => c.left + (step - x0) / (x1 - x0) * (c.wide - c.left - c.right);
    const y = value => c.high - c.bottom - (value - y0) / (y1 - y0) * (c.high - c.top - c.bottom);
    const chart = draw(
        "svg", { viewBox: "0 0 " + c.wide + " " + c.high, role: "img", "aria-label": lossText() });
    for (const value of ticksOf(y0, y1, 5))
        chart.append(draw("line", { x1: c.left, x2: c.wide - c.right, y1: y(value), y2: y(value) }),
                     draw("text", { x: c.left - 6, y: y(value) + 4, class: "end" }, String(value)));
    for (const step of ticksOf(x0, x1, 8, 1))
        chart.append(
            draw("text", { x: x(step), y: c.high - c.bottom + 16, class: "middle" }, String(step)));
    chart.append(
        draw("text", { x: (c.left + c.wide) / 2, y: c.high - 6, class: "middle" }, "step"));
    for (const [name, points] of [["loss", loss], ["validation", validation]]) {
        const places = points.map(([first, last, value]) =>
                                      x((first + last) / 2).toFixed(1) + "," + y(value).toFixed(1));
        chart.append(draw("polyline", { class: name, points: places.join(" ") }));
        if (points.length <= 60)
            chart.append(...places.map((place, n) => {
                const [cx, cy] = place.split(",");
                return draw(
                    "circle", { class: name, cx, cy, r: name === "loss" ? 1.5 : 3 },
                    draw("title", {}, name + " " + points[n][2] + " at step " + points[n][1]));
            }));
    }
    return chart;
}

function lossText() {
    const { loss, validation } = about.curve;
    const said = ([, last, value], of) => of + " loss " + trimmed(value, 3) + " at step " + last;
    const parts = [];
    if (loss.length) parts.push(said(loss[loss.length - 1], "training"));
    if (validation.length) parts.push(said(validation[validation.length - 1], "validation"));
    return parts.join(", ");
}

/* The chart with its caption. */
function lossSection() {
    const { loss, validation } = about.curve, parts = [make("h2", {}, "Loss, in nats per token")];
    const group = loss.length ? loss[0][1] - loss[0][0] + 1 : 1;
    const key = (name, text) => make("span", { className: "key " + name }, text);
    parts.push(lossChart());
    const words = make("p", {});
    if (loss.length)
        words.append(
            key("loss", "training: " + (group > 1 ? "mean of " + group + " steps" : "each batch")));
    if (validation.length) words.append(key("validation", "validation: held-out text"));
    parts.push(words, make("p", {}, "At the end: " + lossText() + "."));
    return make("section", { id: "loss" }, ...parts);
}
