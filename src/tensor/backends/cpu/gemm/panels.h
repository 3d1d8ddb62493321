/* SPDX-License-Identifier: MIT
 *
 * Products with a matrix b in panels, each as wide as a register tile and
 * stored row after row. b is read in order, at the speed of memory, while the
 * rows of a skinny a stay in cache. If a has many rows, a band of them uses a
 * panel while the panel is in cache. The depth of a product is its k. */

/* Rows of a tile: with three vectors each, their sums fill the registers. */
enum { PANEL_ROWS = LANES > 8 ? 8 : 4 };

/* One panel of a product in progress. */
typedef struct panel_product {
    const sl__panel_product *shape;
    const float *a, *panel, *bias;
    float *out;
    int64_t a_row, a_column, a_vector; /* strides: row, k, LANES rows */
    int64_t b_row;
    int64_t m, n;  /* rows of a; columns of the panel without padding */
    int64_t depth; /* of the current part */
    int64_t ahead; /* cache lines to prefetch every AHEAD_EVERY rows */
    /* If not 0, k is stored in pieces of this many, with these strides. */
    int64_t piece, a_piece, b_piece;
    int prefetched; /* rows of the next tile's sums to prefetch in each piece */
    bool adds;
} panel_product;

/* A panel is used in parts of this depth, which stay in cache while all rows
 * use them. Of a streamed panel each tile prefetches some of the next part: so
 * memory is always busy, and no tile waits for it. */
enum { PANEL_DEPTH = 512, AHEAD_EVERY = 4, LINE = 16 };

/* The compile-time constants of a tile. */
typedef struct panel_kind {
    int rows, vectors;
    bool a_packed, b_packed;
} panel_kind;

/* Adds `depth` products to the sums of a tile. */
INLINE void add_panel(vf sum[PANEL_ROWS][SL__PANEL_VECTORS_MAX],
                      const panel_product *s, const float *a, const float *b,
                      int64_t depth, panel_kind is)
{
    const int64_t a_row = is.a_packed ? 1 : s->a_row;
    const int64_t a_column = is.a_packed ? LANES : s->a_column;
    const int64_t b_row = is.b_packed ? (int64_t)is.vectors * LANES : s->b_row;
    for (int64_t k = 0; k < depth; k++) {
        vf right[SL__PANEL_VECTORS_MAX];
#pragma GCC unroll 8
        for (int v = 0; v < is.vectors; v++)
            right[v] = load(b + v * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < is.rows; r++) {
            vf left = splat(a[r * a_row]);
#pragma GCC unroll 8
            for (int v = 0; v < is.vectors; v++)
                sum[r][v] += left * right[v];
        }
        a += a_column;
        b += b_row;
    }
}

/* Adds the whole depth, and prefetches the next part meanwhile. */
INLINE void add_ahead(vf sum[PANEL_ROWS][SL__PANEL_VECTORS_MAX],
                      const panel_product *s, const float *a, int64_t i,
                      panel_kind is)
{
    int64_t lines = s->ahead;
    const float *b = s->panel;
    const float *next = b + s->depth * s->b_row +
                        i / is.rows * (s->depth / AHEAD_EVERY) * lines * LINE;
    int64_t k = 0;
    for (; k + AHEAD_EVERY <= s->depth; k += AHEAD_EVERY) {
        for (int64_t line = 0; line < lines; line++, next += LINE)
            __builtin_prefetch(next, 0, 2);
        add_panel(sum, s, a, b, AHEAD_EVERY, is);
        a += AHEAD_EVERY * s->a_column;
        b += AHEAD_EVERY * s->b_row;
    }
    add_panel(sum, s, a, b, s->depth - k, is);
}

/* Adds the depth piece by piece, and in each piece prefetches a few rows that
 * the next tile adds to: all at once would fill the load queue. */
INLINE void add_pieces(vf sum[PANEL_ROWS][SL__PANEL_VECTORS_MAX],
                       const panel_product *s, const float *a,
                       const float *next, panel_kind is)
{
    const float *b = s->panel;
    int row = 0;
    for (int64_t k = 0; k < s->depth; k += s->piece) {
        for (int i = 0; i < s->prefetched && row < is.rows; i++, row++) {
#pragma GCC unroll 8
            for (int v = 0; v < is.vectors; v++)
                __builtin_prefetch(next + v * LANES, 1, 2);
            next += s->shape->out_row;
        }
        int64_t left = s->depth - k;
        add_panel(sum, s, a, b, left < s->piece ? left : s->piece, is);
        a += s->a_piece;
        b += s->b_piece;
    }
}

/* A tile: some rows of a panel. */
INLINE void panel_tile(const panel_product *s, int64_t i, panel_kind is)
{
    const sl__panel_product *f = s->shape;
    const int rows = is.rows, vectors = is.vectors;
    const int64_t width = (int64_t)vectors * LANES;
    const float *a = s->a + i / LANES * s->a_vector + i % LANES * s->a_row;
    float *out = s->out + i * f->out_row;
    vf sum[PANEL_ROWS][SL__PANEL_VECTORS_MAX];
    float edge[PANEL_ROWS][SL__PANEL_VECTORS_MAX * LANES];
    const bool whole = s->n == width;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        const float *from = s->adds ? out + r * f->out_row : s->bias;
        if (from && !whole) {
            memset(edge[r], 0, sizeof edge[r]);
            memcpy(edge[r], from, sizeof(float) * (size_t)s->n);
            from = edge[r];
        }
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++)
            sum[r][v] = from ? load(from + v * LANES) : (vf){0};
    }
    if (s->piece)
        add_pieces(sum, s, a,
                   i + rows < s->m ? out + rows * f->out_row : s->out + width,
                   is);
    else if (f->b_streamed)
        add_ahead(sum, s, a, i, is);
    else
        add_panel(sum, s, a, s->panel, s->depth, is);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        float *to = whole ? out + r * f->out_row : edge[r];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++)
            store(to + v * LANES, sum[r][v]);
        if (!whole)
            memcpy(out + r * f->out_row, edge[r], sizeof(float) * (size_t)s->n);
    }
}

INLINE void tiles(const panel_product *s, int64_t *i, int rows, panel_kind is)
{
    is.rows = rows;
    for (; *i + rows <= s->m; *i += rows)
        panel_tile(s, *i, is);
}

/* All rows of a panel. Each kind has a function, so that the compiler allocates
 * registers for each separately. */
#define PANEL_FUNCTION(name, ...)                                              \
    static __attribute__((noinline)) void name(const panel_product *s)         \
    {                                                                          \
        int64_t i = 0;                                                         \
        tiles(s, &i, PANEL_ROWS, (panel_kind){0, __VA_ARGS__});                \
        tiles(s, &i, 4, (panel_kind){0, __VA_ARGS__});                         \
        tiles(s, &i, 2, (panel_kind){0, __VA_ARGS__});                         \
        tiles(s, &i, 1, (panel_kind){0, __VA_ARGS__});                         \
    }
PANEL_FUNCTION(three_packed, 3, true, true)
PANEL_FUNCTION(three_rows, 3, false, true)
PANEL_FUNCTION(three_in_place, 3, false, false)
PANEL_FUNCTION(two_packed, 2, true, true)
PANEL_FUNCTION(two_rows, 2, false, true)
PANEL_FUNCTION(two_in_place, 2, false, false)

typedef void panel_fn(const panel_product *s);

/* The function for panels of this many vectors. */
static panel_fn *choose_function(int vectors, bool a_packed, bool b_packed)
{
    if (!b_packed)
        return vectors == 2 ? two_in_place : three_in_place;
    if (!a_packed)
        return vectors == 2 ? two_rows : three_rows;
    return vectors == 2 ? two_packed : three_packed;
}

/* Rows that use a panel at a time: few enough to stay in cache, and to leave
 * bands for other threads. A multiple of LANES. */
enum { PANEL_BAND = 128 };

static int64_t panels_of(int64_t n, int64_t vectors)
{
    int64_t width = vectors * LANES;
    return (n + width - 1) / width;
}

/* A product in progress: where its operands are read. */
typedef struct panel_work {
    const sl__panel_product *shape;
    const float *a, *b, *bias;
    float *out;
    int64_t a_row, a_column, a_vector;
    int64_t b_row, b_panel; /* strides: next row of a panel, next panel */
    int64_t panels;
    int64_t a_piece, b_piece; /* strides, if the shape has pieces */
} panel_work;

/* Divides the current part into pieces: as it is stored or, if `out` is to be
 * prefetched, one for each row of a tile. */
static void divide_depth(const panel_work *w, panel_product *s)
{
    const sl__panel_product *f = s->shape;
    s->piece = f->piece;
    s->a_piece = w->a_piece;
    s->b_piece = w->b_piece;
    if (!s->piece && f->out_streamed) {
        s->piece = (s->depth + PANEL_ROWS - 1) / PANEL_ROWS;
        s->a_piece = s->piece * s->a_column;
        s->b_piece = s->piece * s->b_row;
    }
    if (f->out_streamed) {
        int64_t pieces = (s->depth + s->piece - 1) / s->piece;
        s->prefetched = (int)((PANEL_ROWS + pieces - 1) / pieces);
    }
}

/* One panel by one band. If three vectors is the width, two may do for the last
 * panel. */
static void multiply_panel(const panel_work *w, int64_t band, int64_t panel)
{
    const sl__panel_product *f = w->shape;
    int64_t width = (int64_t)f->vectors * LANES;
    int64_t i = band * PANEL_BAND, j = panel * width;
    panel_product s = {.shape = f,
                       .a = w->a + i / LANES * w->a_vector,
                       .panel = w->b + panel * w->b_panel,
                       .bias = w->bias ? w->bias + j : NULL,
                       .out = w->out + i * f->out_row + j,
                       .a_row = w->a_row,
                       .a_column = w->a_column,
                       .a_vector = w->a_vector,
                       .b_row = w->b_row,
                       .m = f->m - i < PANEL_BAND ? f->m - i : PANEL_BAND,
                       .n = f->n - j < width ? f->n - j : width};
    int vectors = f->vectors > 2 && s.n <= 2 * LANES ? 2 : f->vectors;
    panel_fn *run =
        choose_function(vectors, w->a_row == 1 && w->a_column == LANES,
                        w->b_row == (int64_t)vectors * LANES);
    int64_t tiles = (s.m + PANEL_ROWS - 1) / PANEL_ROWS;
    s.ahead = (AHEAD_EVERY * width / LINE + tiles - 1) / tiles;
    int64_t pieces = f->piece ? PANEL_DEPTH / f->piece : 0;
    int64_t most = pieces ? pieces * f->piece : PANEL_DEPTH;
    for (int64_t k = 0; k < f->k; k += most) {
        s.depth = f->k - k < most ? f->k - k : most;
        s.adds = f->adds || k > 0;
        divide_depth(w, &s);
        run(&s);
        s.a += pieces ? pieces * s.a_piece : s.depth * s.a_column;
        s.panel += pieces ? pieces * s.b_piece : s.depth * s.b_row;
    }
}

static void multiply_panels_part(void *data, int worker, int64_t from,
                                 int64_t to)
{
    (void)worker;
    const panel_work *w = data;
    for (int64_t at = from; at < to; at++)
        multiply_panel(w, at / w->panels, at % w->panels);
}

/* Packs `columns` contiguous columns into a panel. */
static void pack_columns(const sl__panel_pack *f, const float *in,
                         int64_t columns, float *out, int64_t width)
{
    int64_t done = columns / LANES * LANES, k = 0;
    for (; k + LANES <= f->k && f->row == 1; k += LANES) {
        for (int64_t c = 0; c < done; c += LANES)
            transpose_square(in + k + c * f->column, f->column,
                             out + k * width + c, width, f->streamed);
    }
    for (int64_t c = 0; c < columns; c++) {
        for (int64_t i = c < done ? k : 0; i < f->k; i++)
            out[i * width + c] = in[i * f->row + c * f->column];
    }
}

/* Packs whole panels of a matrix with contiguous rows, a few rows at a time, so
 * that memory is read in order. */
static void pack_rows(const sl__panel_pack *f, const float *in, int64_t panels,
                      float *out, int64_t width)
{
    enum { AT_A_TIME = 16 };
    const int64_t depth = f->k, row = f->row, panel = width * f->depth;
    const bool streamed = f->streamed;
    for (int64_t from = 0; from < depth; from += AT_A_TIME) {
        int64_t to = depth - from < AT_A_TIME ? depth : from + AT_A_TIME;
        for (int64_t j = 0; j < panels; j++) {
            const float *x = in + j * width + from * row;
            float *y = out + j * panel + from * width;
            for (int64_t k = from; k < to; k++, x += row, y += width) {
                for (int64_t c = 0; c < width; c += LANES)
                    set_vector(y + c, load(x + c), streamed);
            }
        }
    }
}

/* Packs panels from..to; columns past the last are zeros. */
static void pack_panels_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    const sl__panel_pack *f = w->kernel->private;
    int64_t width = f->vectors * LANES, whole = f->n / width;
    const float *matrix = w->p[0];
    float *packed = w->p[1];
    if (f->column == 1 && from < whole) {
        int64_t end = to < whole ? to : whole;
        pack_rows(f, matrix + from * width, end - from,
                  packed + from * width * f->depth, width);
        from = end;
    }
    for (int64_t j = from; j < to; j++) {
        int64_t first = j * width;
        int64_t columns = j < whole ? width : f->n - first;
        const float *in = matrix + first * f->column;
        float *out = packed + first * f->depth;
        if (columns < width)
            memset(out, 0, sizeof *out * (size_t)(width * f->k));
        if (f->column != 1) {
            pack_columns(f, in, columns, out, width);
            continue;
        }
        for (int64_t k = 0; k < f->k; k++)
            memcpy(out + k * width, in + k * f->row,
                   sizeof *out * (size_t)columns);
    }
    stream_end();
}

/* Packs all of a matrix on so many threads; 0: on this one alone. */
static void pack_matrix(const sl__panel_pack *f, const float *from, float *to,
                        int threads)
{
    const sl__kernel kernel = {.private = (void *)f};
    void *const p[] = {(void *)from, to};
    work shared = {&kernel, p, NULL};
    int64_t panels = panels_of(f->n, f->vectors);
    int64_t grain = GRAIN / (f->k * f->vectors * LANES) + 1;
    if (threads)
        sl__parallel(threads, panels, grain, pack_panels_part, &shared);
    else
        pack_panels_part(&shared, 0, 0, panels);
}

static sl_status pack_panels(ARGS)
{
    pack_matrix(kernel->private, p[0], p[1], sl__threads_of(run));
    return SL_OK;
}

/* As many multiplications as are worth a thread. */
enum { PANEL_GRAIN = 1 << 18 };

/* Multiplies what is packed on so many threads; 0: on this one alone. */
static void multiply_all(panel_work *w, int threads)
{
    const sl__panel_product *f = w->shape;
    int64_t bands = (f->m + PANEL_BAND - 1) / PANEL_BAND;
    int64_t rows = f->m < PANEL_BAND ? f->m : PANEL_BAND;
    int64_t each = rows * f->k * f->vectors * LANES;
    if (threads)
        sl__parallel(threads, bands * w->panels, PANEL_GRAIN / each + 1,
                     multiply_panels_part, w);
    else
        multiply_panels_part(w, 0, 0, bands * w->panels);
}

/* One product of the batch. */
static void multiply_one(const sl__kernel *kernel, void *const *p, int64_t i,
                         float *scratch, int threads)
{
    const sl__panel_product *f = kernel->private;
    int64_t width = (int64_t)f->vectors * LANES;
    panel_work w = {.shape = f,
                    .a = (const float *)p[f->a] + i * f->a_batch,
                    .b = (const float *)p[f->b] + i * f->b_batch,
                    .bias = f->bias < 0 ? NULL : p[f->bias],
                    .out = (float *)p[kernel->operand_count] + i * f->out_batch,
                    .a_row = f->a_row,
                    .a_column = f->a_column,
                    .a_vector = LANES * f->a_row,
                    .b_row = f->b_row ? f->b_row : width,
                    .b_panel = f->b_row ? width : f->k * width,
                    .panels = panels_of(f->n, f->vectors)};
    if (f->packs_b) {
        pack_matrix(&f->b_pack, w.b, scratch, threads);
        w.b = scratch;
        scratch += w.panels * w.b_panel;
    }
    if (f->packs_a) {
        pack_matrix(&f->a_pack, w.a, scratch, threads);
        w.a = scratch;
        w.a_row = 1;
        w.a_column = LANES;
        w.a_vector = LANES * f->k;
    }
    multiply_all(&w, threads);
}

/* Products from..to of the batch, each on one thread. */
static void multiply_batch_part(void *data, int worker, int64_t from,
                                int64_t to)
{
    const work *w = data;
    const sl__panel_product *f = w->kernel->private;
    float *scratch = w->p[w->kernel->arg_count - 1];
    for (int64_t i = from; i < to; i++)
        multiply_one(w->kernel, w->p, i, scratch + worker * f->worker_scratch,
                     0);
}

static sl_status multiply_panels(ARGS)
{
    const sl__panel_product *f = kernel->private;
    int threads = sl__threads_of(run);
    work shared = {kernel, p, run};
    float *scratch = p[kernel->arg_count - 1];
    if (f->workers)
        sl__parallel_few(threads, f->workers, f->batch,
                         PANEL_GRAIN / (f->m * f->n * f->k) + 1,
                         multiply_batch_part, &shared);
    for (int64_t i = 0; i < f->batch && !f->workers; i++)
        multiply_one(kernel, p, i, scratch, threads);
    return activate(kernel, p, run);
}
