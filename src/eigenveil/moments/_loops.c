/* Loops over the rows of a block: what moments/loops.py does with NumPy, in one pass each.
 *
 * Rounding is a rule of the row (docs/proofs/release-grid.md): built without contraction and
 * without fast-math. Squares may be added up in any order, entries have one result.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Must be INTERFACE of moments/loops.py: another one is not used. */
#define INTERFACE 2

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif
#define PIECE 1024 /* squares that are added up in single precision, as _PIECE of norms.py */
#define LANES 16
#define SHORT 48 /* rows of fewer entries are added up several at a time */
#define SOME 64 /* rows that stay in the nearest cache between two steps */

/* -- norms: the next number of a sequence above a squared norm (norms.py has the reasons) */

typedef struct {
    int64_t step, shift, near, room;
    double lowest, highest;
} Sequence;

static Sequence sequence_of(int bits, int64_t shift, int64_t near, double lowest, double highest)
{
    Sequence s = {(int64_t)1 << (52 - bits), shift, near, 0, lowest, highest};
    s.room = s.step > 2 * near ? s.step - 2 * near : 0;
    return s;
}

/* The norm, or NaN where the squares do not settle it. */
static inline __attribute__((always_inline)) double upper_norm(double square, const Sequence *s)
{
    int64_t pattern, place;
    double next;
    memcpy(&pattern, &square, 8);
    place = ((pattern + s->shift) & (s->step - 1)) - s->near;
    if (!((uint64_t)place < (uint64_t)s->room && square >= s->lowest && square <= s->highest))
        return NAN;
    pattern = ((pattern + s->shift) | (s->step - 1)) + 1 - s->shift;
    memcpy(&next, &pattern, 8);
    return sqrt(next);
}

#define SQUARES(T, NAME)                                                                           \
    static inline __attribute__((always_inline)) double NAME(const T *row, Py_ssize_t width)                                      \
    {                                                                                              \
        double total = 0.0;                                                                        \
        for (Py_ssize_t start = 0; start < width; start += PIECE) {                                \
            Py_ssize_t end = start + PIECE < width ? start + PIECE : width, j = start;             \
            T sum = 0, lanes[LANES] = {0};                                                         \
            for (; j + LANES <= end; j += LANES)                                                   \
                for (int k = 0; k < LANES; k++)                                                    \
                    lanes[k] += row[j + k] * row[j + k];                                           \
            if (end - start >= LANES)                                                              \
                for (int half = LANES / 2; half > 0; half /= 2)                                    \
                    for (int k = 0; k < half; k++)                                                 \
                        lanes[k] += lanes[k + half];                                               \
            for (sum = lanes[0]; j + 4 <= end; j += 4)                                             \
                sum += (row[j] * row[j] + row[j + 1] * row[j + 1])                                 \
                       + (row[j + 2] * row[j + 2] + row[j + 3] * row[j + 3]);                      \
            for (; j < end; j++)                                                                   \
                sum += row[j] * row[j];                                                            \
            total += (double)sum;                                                                  \
        }                                                                                          \
        return total;                                                                              \
    }
SQUARES(float, squares_f)
SQUARES(double, squares_d)

/* The same of several rows: of short ones eight at a time, which do not wait for each other. */
#define SQUARES_OF_ROWS(T, NAME, SQUARES_OF)                                                       \
    static inline __attribute__((always_inline)) void NAME(const T *rows, Py_ssize_t count,        \
                                                           Py_ssize_t width, double *squares)      \
    {                                                                                              \
        Py_ssize_t i = 0;                                                                          \
        for (; width < SHORT && i + 8 <= count; i += 8) {                                          \
            const T *row = rows + i * width;                                                       \
            T sum[8] = {0};                                                                        \
            for (Py_ssize_t j = 0; j < width; j++)                                                 \
                for (int k = 0; k < 8; k++)                                                        \
                    sum[k] += row[k * width + j] * row[k * width + j];                             \
            for (int k = 0; k < 8; k++)                                                            \
                squares[i + k] = (double)sum[k];                                                   \
        }                                                                                          \
        for (; i < count; i++)                                                                     \
            squares[i] = SQUARES_OF(rows + i * width, width);                                      \
    }
SQUARES_OF_ROWS(float, squares_of_f, squares_f)
SQUARES_OF_ROWS(double, squares_of_d, squares_d)

#define NORMS(T, NAME, SQUARES_OF)                                                                 \
    WIDE static Py_ssize_t NAME(const T *rows, Py_ssize_t count, Py_ssize_t width, double *norms,  \
                                const Sequence *s)                                                 \
    {                                                                                              \
        Py_ssize_t open = 0;                                                                       \
        SQUARES_OF(rows, count, width, norms);                                                     \
        for (Py_ssize_t i = 0; i < count; i++) {                                                   \
            norms[i] = upper_norm(norms[i], s);                                                    \
            open += norms[i] != norms[i];                                                          \
        }                                                                                          \
        return open;                                                                               \
    }
NORMS(float, norms_f, squares_of_f)
NORMS(double, norms_d, squares_of_d)

/* -- entries less their centre, as Preparation and Block.residuals of rows.py have them */

typedef struct {
    const void *offset, *factors, *center;
    double limit;
} Steps;

#define CHUNK 256
#define PREPARED(IN, KIND, OUT, NAME)                                                              \
    static inline __attribute__((always_inline)) void NAME##_row(                                  \
        const IN *in, OUT *out, Py_ssize_t width, const Steps *steps)                              \
    {                                                                                              \
        const KIND *offset = steps->offset, *factors = steps->factors, *center = steps->center;    \
        const KIND limit = (KIND)steps->limit;                                                     \
        KIND part[CHUNK];                                                                          \
        for (Py_ssize_t start = 0; start < width; start += CHUNK) {                                \
            const Py_ssize_t n = start + CHUNK < width ? CHUNK : width - start;                    \
            for (Py_ssize_t j = 0; j < n; j++)                                                     \
                part[j] = (KIND)in[start + j];                                                     \
            if (offset)                                                                            \
                for (Py_ssize_t j = 0; j < n; j++)                                                 \
                    part[j] -= offset[start + j];                                                  \
            if (factors)                                                                           \
                for (Py_ssize_t j = 0; j < n; j++)                                                 \
                    part[j] *= factors[start + j];                                                 \
            if (steps->limit != INFINITY)                                                          \
                for (Py_ssize_t j = 0; j < n; j++) {                                               \
                    part[j] = part[j] < -limit ? -limit : part[j];                                 \
                    part[j] = part[j] > limit ? limit : part[j];                                   \
                }                                                                                  \
            if (center)                                                                            \
                for (Py_ssize_t j = 0; j < n; j++)                                                 \
                    out[start + j] = (OUT)(part[j] - center[start + j]);                           \
            else                                                                                   \
                for (Py_ssize_t j = 0; j < n; j++)                                                 \
                    out[start + j] = (OUT)part[j];                                                 \
        }                                                                                          \
    }                                                                                              \
    WIDE static void NAME(const char *in, Py_ssize_t down, OUT *out, Py_ssize_t count,             \
                          Py_ssize_t width, const Steps *steps)                                    \
    {                                                                                              \
        for (Py_ssize_t i = 0; i < count; i++)                                                     \
            NAME##_row((const IN *)(in + i * down), out + i * width, width, steps);                \
    }
PREPARED(float, float, float, prepared_fff)
PREPARED(float, double, float, prepared_fdf)
PREPARED(float, double, double, prepared_fdd)
PREPARED(double, float, float, prepared_dff)
PREPARED(double, double, float, prepared_ddf)
PREPARED(double, double, double, prepared_ddd)

/* -- rows times their factors, rounded to integers, as integer_rows of norms.py */

#define ROUNDED(T, NAME, SQUARES_OF, RINT)                                                         \
    WIDE static Py_ssize_t NAME(const T *rows, const double *factors, const double *limits,        \
                                double limit, T *out, T *squares, Py_ssize_t count,                \
                                Py_ssize_t width)                                                  \
    {                                                                                              \
        Py_ssize_t longer = 0;                                                                     \
        double found[SOME];                                                                        \
        for (Py_ssize_t start = 0; start < count; start += SOME) {                                 \
            const Py_ssize_t n = start + SOME < count ? SOME : count - start;                      \
            const T *from = rows + start * width;                                                  \
            T *into = out + start * width;                                                         \
            for (Py_ssize_t i = 0; i < n; i++) {                                                   \
                const T factor = (T)factors[start + i];                                            \
                for (Py_ssize_t j = 0; j < width; j++)                                             \
                    into[i * width + j] = RINT(from[i * width + j] * factor);                      \
            }                                                                                      \
            SQUARES_OF(into, n, width, found);                                                     \
            for (Py_ssize_t i = 0; i < n; i++) {                                                   \
                squares[start + i] = (T)found[i];                                                  \
                longer += found[i] > (limits ? limits[start + i] : limit);                         \
            }                                                                                      \
        }                                                                                          \
        return longer;                                                                             \
    }
ROUNDED(float, rounded_f, squares_of_f, rintf)
ROUNDED(double, rounded_d, squares_of_d, rint)

/* -- counts, as norm_bins and ColumnHistogram of histograms.py have them */

typedef struct {
    int64_t lowest, edges[4], bins;
} Octaves;

static void count_norms(const double *norms, Py_ssize_t count, int64_t *counts, const Octaves *o)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t pattern, index;
        memcpy(&pattern, &norms[i], 8);
        index = ((pattern >> 52) - o->lowest) * 4;
        for (int k = 0; k < 4; k++)
            index += (pattern & (((int64_t)1 << 52) - 1)) > o->edges[k];
        counts[index < 0 ? 0 : index >= o->bins ? o->bins - 1 : index]++;
    }
}

/* Bins of magnitudes, or, where `within` is not 0, equal ones over a range. */
typedef struct {
    int shift, sign;
    int64_t below, above, middle, bins;
    double within;
} Bins;

static inline __attribute__((always_inline)) int64_t magnitude(float entry, const Bins *b)
{
    uint32_t pattern;
    memcpy(&pattern, &entry, 4);
    int64_t upper = pattern >> b->shift, negative = upper >> b->sign;
    upper &= ((int64_t)1 << b->sign) - 1;
    upper = (upper < b->below ? b->below : upper > b->above ? b->above : upper) - b->below;
    return b->middle + (negative ? -upper : upper);
}

#define COUNTED(T, NAME)                                                                           \
    WIDE static void NAME(const T *rows, Py_ssize_t count, Py_ssize_t width,                       \
                          const int64_t *columns, int64_t *counts, const Bins *b)                  \
    {                                                                                              \
        const T within = (T)b->within, last = (T)(b->bins - 1);                                    \
        for (Py_ssize_t i = 0; i < count; i++)                                                     \
            for (Py_ssize_t j = 0; j < width; j++) {                                               \
                int64_t *bins = counts + columns[j] * b->bins;                                     \
                if (b->within == 0.0) {                                                            \
                    bins[magnitude((float)rows[i * width + j], b)]++;                              \
                } else {                                                                           \
                    T place = rows[i * width + j] * within;                                        \
                    place += within + 1;                                                           \
                    place = place > 0 ? place : 0;                                                 \
                    bins[(int64_t)(place < last ? place : last)]++;                                \
                }                                                                                  \
            }                                                                                      \
    }
COUNTED(float, counted_f)
COUNTED(double, counted_d)

/* -- energies along directions, and the rest, as ComponentEnergy of accumulators.py has them */

#define ENERGIES(T, NAME, TRUNC)                                                                   \
    WIDE static void NAME(const T *along, Py_ssize_t count, Py_ssize_t width, double factor,       \
                          const T *lengths, double scale, double *sums)                            \
    {                                                                                              \
        for (Py_ssize_t i = 0; i < count; i++) {                                                   \
            double energy = 0.0;                                                                   \
            for (Py_ssize_t j = 0; j < width; j++) {                                               \
                const double entry = (double)TRUNC(along[i * width + j] * (T)factor);              \
                energy += entry * entry;                                                           \
                sums[j] += entry * entry;                                                          \
            }                                                                                      \
            energy = floor((double)lengths[i] * scale) - energy;                                   \
            sums[width] += energy > 0.0 ? energy : 0.0;                                            \
        }                                                                                          \
    }
ENERGIES(float, energies_f, truncf)
ENERGIES(double, energies_d, trunc)

/* -- arguments: arrays come in as buffers */

typedef struct {
    Py_buffer view[8];
    int count;
} Buffers;

static void let_go(Buffers *b)
{
    while (b->count > 0)
        PyBuffer_Release(&b->view[--b->count]);
}

/* What a call returns whose arrays do not fit together: nothing was written. */
static PyObject *refused(Buffers *b)
{
    let_go(b);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "arrays do not fit together");
    return NULL;
}

static Py_buffer *taken(Buffers *b, PyObject *array, int flags)
{
    Py_buffer *view = &b->view[b->count];
    if (PyObject_GetBuffer(array, view, flags | PyBUF_FORMAT) < 0)
        return NULL;
    b->count++;
    if (!view->format || (strcmp(view->format, "d") && strcmp(view->format, "f")
                          && strcmp(view->format, "l") && strcmp(view->format, "q"))) {
        PyErr_SetString(PyExc_TypeError, "not an array of these loops");
        return NULL;
    }
    return view;
}

#define IN PyBUF_C_CONTIGUOUS
#define OUT (PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)

static int same(const Py_buffer *view, char kind, Py_ssize_t entries)
{
    return view->format[0] == kind && view->len == entries * view->itemsize;
}

static int whole(const Py_buffer *view, Py_ssize_t entries)
{
    return view->itemsize == 8 && same(view, view->format[0] == 'q' ? 'q' : 'l', entries);
}

/* The data of an array that may be None; `ok` becomes 0 where it is wrong. */
static const void *optional(Buffers *b, PyObject *array, char kind, Py_ssize_t entries, int *ok)
{
    Py_buffer *view;
    if (array == Py_None || !*ok)
        return NULL;
    view = taken(b, array, IN);
    *ok = view && same(view, kind, entries);
    return *ok ? view->buf : NULL;
}

/* prepared(values, single, offset, factors, limit, center, out) */
static PyObject *loops_prepared(PyObject *self, PyObject *args)
{
    PyObject *values, *offset, *factors, *center, *into;
    Buffers b = {.count = 0};
    Steps steps;
    int single, ok = 1;
    (void)self;
    if (!PyArg_ParseTuple(args, "OpOOdOO", &values, &single, &offset, &factors, &steps.limit,
                          &center, &into))
        return NULL;
    Py_buffer *in = taken(&b, values, PyBUF_STRIDED_RO), *out = in ? taken(&b, into, OUT) : NULL;
    if (!out || in->ndim != 2 || (in->shape[1] > 1 && in->strides[1] != in->itemsize)
        || !same(out, out->format[0], in->shape[0] * in->shape[1]))
        ok = 0;
    if (ok) {
        const char kind = single ? 'f' : 'd';
        steps.offset = optional(&b, offset, kind, in->shape[1], &ok);
        steps.factors = optional(&b, factors, kind, in->shape[1], &ok);
        steps.center = optional(&b, center, kind, in->shape[1], &ok);
    }
    if (!ok)
        return refused(&b);
    const Py_ssize_t n = in->shape[0], d = in->shape[1], down = in->strides[0];
    const int wide_in = in->format[0] == 'd', wide_out = out->format[0] == 'd';
    Py_BEGIN_ALLOW_THREADS
    if (!wide_in && single)
        prepared_fff(in->buf, down, out->buf, n, d, &steps);
    else if (!wide_in && !wide_out)
        prepared_fdf(in->buf, down, out->buf, n, d, &steps);
    else if (!wide_in)
        prepared_fdd(in->buf, down, out->buf, n, d, &steps);
    else if (single)
        prepared_dff(in->buf, down, out->buf, n, d, &steps);
    else if (!wide_out)
        prepared_ddf(in->buf, down, out->buf, n, d, &steps);
    else
        prepared_ddd(in->buf, down, out->buf, n, d, &steps);
    Py_END_ALLOW_THREADS
    let_go(&b);
    Py_RETURN_NONE;
}

/* norms(rows, out, bits, shift, near, lowest, highest) -> how many are NaN: not settled */
static PyObject *loops_norms(PyObject *self, PyObject *args)
{
    PyObject *rows, *into;
    Buffers b = {.count = 0};
    int bits;
    long long shift, near;
    double lowest, highest;
    Py_ssize_t open = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOiLLdd", &rows, &into, &bits, &shift, &near, &lowest, &highest))
        return NULL;
    Py_buffer *in = taken(&b, rows, IN), *out = in ? taken(&b, into, OUT) : NULL;
    if (!out || in->ndim != 2 || !same(out, 'd', in->shape[0]))
        return refused(&b);
    const Sequence s = sequence_of(bits, shift, near, lowest, highest);
    const Py_ssize_t n = in->shape[0], d = in->shape[1];
    Py_BEGIN_ALLOW_THREADS
    open = in->format[0] == 'd' ? norms_d(in->buf, n, d, out->buf, &s)
                                : norms_f(in->buf, n, d, out->buf, &s);
    Py_END_ALLOW_THREADS
    let_go(&b);
    return PyLong_FromSsize_t(open);
}

/* rounded(rows, factors, limits or None, limit, out, squares) -> how many are longer */
static PyObject *loops_rounded(PyObject *self, PyObject *args)
{
    PyObject *rows, *factors, *limits, *into, *into_squares;
    Buffers b = {.count = 0};
    double limit;
    Py_ssize_t longer = 0;
    int ok = 1;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOdOO", &rows, &factors, &limits, &limit, &into, &into_squares))
        return NULL;
    Py_buffer *in = taken(&b, rows, IN), *out = in ? taken(&b, into, OUT) : NULL,
              *squares = out ? taken(&b, into_squares, OUT) : NULL;
    ok = squares && in->ndim == 2 && same(out, in->format[0], in->shape[0] * in->shape[1])
         && same(squares, in->format[0], in->shape[0]);
    const double *by = ok ? optional(&b, factors, 'd', in->shape[0], &ok) : NULL;
    const double *most = ok ? optional(&b, limits, 'd', in->shape[0], &ok) : NULL;
    if (!ok || !by)
        return refused(&b);
    const Py_ssize_t n = in->shape[0], d = in->shape[1];
    Py_BEGIN_ALLOW_THREADS
    longer = in->format[0] == 'd'
                 ? rounded_d(in->buf, by, most, limit, out->buf, squares->buf, n, d)
                 : rounded_f(in->buf, by, most, limit, out->buf, squares->buf, n, d);
    Py_END_ALLOW_THREADS
    let_go(&b);
    return PyLong_FromSsize_t(longer);
}

/* norm_bins(norms, counts, lowest, edges): counts grow */
static PyObject *loops_norm_bins(PyObject *self, PyObject *args)
{
    PyObject *norms, *into;
    Buffers b = {.count = 0};
    Octaves o;
    long long lowest, edges[4];
    (void)self;
    if (!PyArg_ParseTuple(args, "OOLLLLL", &norms, &into, &lowest, &edges[0], &edges[1], &edges[2],
                          &edges[3]))
        return NULL;
    Py_buffer *in = taken(&b, norms, IN), *out = in ? taken(&b, into, OUT) : NULL;
    if (!out || !same(in, 'd', in->len / 8) || !whole(out, out->len / 8) || out->len < 8)
        return refused(&b);
    o.lowest = lowest, o.bins = out->len / 8;
    for (int k = 0; k < 4; k++)
        o.edges[k] = edges[k];
    Py_BEGIN_ALLOW_THREADS
    count_norms(in->buf, in->len / 8, out->buf, &o);
    Py_END_ALLOW_THREADS
    let_go(&b);
    Py_RETURN_NONE;
}

/* column_bins(rows, columns, counts, within, shift, sign, below, above, middle): counts grow */
static PyObject *loops_column_bins(PyObject *self, PyObject *args)
{
    PyObject *rows, *columns, *into;
    Buffers b = {.count = 0};
    Bins bins;
    long long below, above, middle;
    int ok = 1;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOdiiLLL", &rows, &columns, &into, &bins.within, &bins.shift,
                          &bins.sign, &below, &above, &middle))
        return NULL;
    Py_buffer *in = taken(&b, rows, IN), *of = in ? taken(&b, columns, IN) : NULL,
              *out = of ? taken(&b, into, OUT) : NULL;
    ok = out && in->ndim == 2 && out->ndim == 2 && whole(of, in->shape[1])
         && whole(out, out->shape[0] * out->shape[1]);
    for (Py_ssize_t j = 0; ok && j < in->shape[1]; j++)
        ok = ((int64_t *)of->buf)[j] >= 0 && ((int64_t *)of->buf)[j] < out->shape[0];
    if (ok) {
        bins.below = below, bins.above = above, bins.middle = middle, bins.bins = out->shape[1];
        ok = bins.within != 0.0 || (middle >= above - below && middle + above - below < bins.bins);
    }
    if (!ok)
        return refused(&b);
    const Py_ssize_t n = in->shape[0], d = in->shape[1];
    Py_BEGIN_ALLOW_THREADS
    if (in->format[0] == 'd')
        counted_d(in->buf, n, d, of->buf, out->buf, &bins);
    else
        counted_f(in->buf, n, d, of->buf, out->buf, &bins);
    Py_END_ALLOW_THREADS
    let_go(&b);
    Py_RETURN_NONE;
}

/* energies(along, factor, lengths, scale, sums): sums of squares along each, and of the rest */
static PyObject *loops_energies(PyObject *self, PyObject *args)
{
    PyObject *along, *lengths, *into;
    Buffers b = {.count = 0};
    double factor, scale;
    (void)self;
    if (!PyArg_ParseTuple(args, "OdOdO", &along, &factor, &lengths, &scale, &into))
        return NULL;
    Py_buffer *in = taken(&b, along, IN), *long_ = in ? taken(&b, lengths, IN) : NULL,
              *out = long_ ? taken(&b, into, OUT) : NULL;
    if (!out || in->ndim != 2 || !same(long_, in->format[0], in->shape[0])
        || !same(out, 'd', in->shape[1] + 1))
        return refused(&b);
    const Py_ssize_t n = in->shape[0], d = in->shape[1];
    Py_BEGIN_ALLOW_THREADS
    if (in->format[0] == 'd')
        energies_d(in->buf, n, d, factor, long_->buf, scale, out->buf);
    else
        energies_f(in->buf, n, d, factor, long_->buf, scale, out->buf);
    Py_END_ALLOW_THREADS
    let_go(&b);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"prepared", loops_prepared, METH_VARARGS, "Entries prepared, less their centre."},
    {"norms", loops_norms, METH_VARARGS, "Norms, rounded up; NaN where the order may matter."},
    {"rounded", loops_rounded, METH_VARARGS, "Rows times factors as integers, and squares."},
    {"norm_bins", loops_norm_bins, METH_VARARGS, "Counts of norms in quarters of octaves."},
    {"column_bins", loops_column_bins, METH_VARARGS, "Counts of each column's entries."},
    {"energies", loops_energies, METH_VARARGS, "Sums of squares along directions, and the rest."},
    {NULL, NULL, 0, NULL},
};

static int loops_exec(PyObject *module)
{
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)loops_exec}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_loops", .m_size = 0, .m_methods = methods, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__loops(void)
{
    return PyModuleDef_Init(&definition);
}
