/* SPDX-License-Identifier: MIT
 *
 * Functions of one row, included once for each type of elements: NUMBER is the
 * type, ROW(name) makes a name of it. */

INLINE float ROW(row_max)(const NUMBER *x, int64_t columns)
{
    vf most = splat(-INFINITY);
    float last = -INFINITY;
    WALK(columns, most = larger(load(x + i), most), {
        for (int64_t k = 0; k < n; k++)
            last = get(x + i + k) > last ? get(x + i + k) : last;
    });
    float found = max_lanes(most);
    return found > last ? found : last;
}

/* Writes exp(scale x - shift) and returns the sum. The shift is the largest
 * scaled x, so results are at most 1, also after rounding. `out` may be x. */
INLINE float ROW(row_exp)(const NUMBER *x, NUMBER *out, int64_t columns,
                          float scale, float shift)
{
    vf total = {0};
    WALK(
        columns,
        {
            vf e = exp_lanes(at_most_0(load(x + i) * scale - shift));
            total += e;
            store(out + i, e);
        },
        {
            vf part = load_part(x + i, n) * scale - shift;
            vf e = first_lanes(exp_lanes(at_most_0(part)), n);
            total += e;
            store_part(out + i, e, n);
        });
    return sum_lanes(total);
}

INLINE float ROW(row_exp_sum)(const NUMBER *x, int64_t columns, float shift)
{
    vf total = {0};
    WALK(columns, total += exp_lanes(load(x + i) - shift),
         total += first_lanes(exp_lanes(load_part(x + i, n) - shift), n));
    return sum_lanes(total);
}

INLINE void ROW(row_scale)(NUMBER *x, int64_t columns, float factor)
{
    WALK(columns, store(x + i, load(x + i) * factor),
         store_part(x + i, load_part(x + i, n) * factor, n));
}

INLINE float ROW(row_dot)(const NUMBER *a, const NUMBER *b, int64_t columns)
{
    vf total = {0};
    WALK(columns, total += load(a + i) * load(b + i),
         total += load_part(a + i, n) * load_part(b + i, n));
    return sum_lanes(total);
}
