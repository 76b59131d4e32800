// Everything that is neither a convolution, nor a matrix product, nor elementwise. `real` is the type of real numbers;
// every kernel computes each element of its result alone and in a fixed order, so that results are the same at every
// run.

template <typename T>
__device__ void copy(const T *x, T *y, u32 count, const Axes &axes, const Strides &from, const Strides &to) {
    for (EACH(i, count)) y[place(i, axes, to)] = x[place(i, axes, from)];
}

extern "C" __global__ void copy_real(const real *x, real *y, u32 n, Axes a, Strides f, Strides t) { copy(x, y, n, a, f, t); }
extern "C" __global__ void copy_int(const long long *x, long long *y, u32 n, Axes a, Strides f, Strides t) { copy(x, y, n, a, f, t); }
extern "C" __global__ void copy_bool(const u8 *x, u8 *y, u32 n, Axes a, Strides f, Strides t) { copy(x, y, n, a, f, t); }

// Elements added around x: 0 a constant, 1 mirrored, 2 the nearest.
struct Margins {
    int mode;
    int before[RANK];
    int length[RANK];
};

template <typename T>
__device__ void pad(const T *x, T *y, T constant, u32 count, const Axes &axes, const Strides &from, const Margins &m) {
    for (EACH(i, count)) {
        long long at = 0;
        bool inside = true;
        u32 rest = i;
        for (int axis = axes.rank - 1; axis >= 0; --axis) {
            u32 next = quotient(rest, axes.length[axis]);
            int p = (int)(rest - next * axes.length[axis].by) - m.before[axis];
            int last = m.length[axis] - 1;
            if (m.mode == 1) p = p < 0 ? -p : (p > last ? 2 * last - p : p);
            if (m.mode == 2) p = p < 0 ? 0 : (p > last ? last : p);
            inside = inside && p >= 0 && p <= last;
            at += p * from.along[axis];
            rest = next;
        }
        y[i] = inside ? x[at] : constant;
    }
}

extern "C" __global__ void pad_real(const real *x, real *y, double c, u32 n, Axes a, Strides f, Margins m) { pad(x, y, (real)c, n, a, f, m); }
extern "C" __global__ void pad_int(const long long *x, long long *y, double c, u32 n, Axes a, Strides f, Margins m) { pad(x, y, (long long)c, n, a, f, m); }
extern "C" __global__ void pad_bool(const u8 *x, u8 *y, double c, u32 n, Axes a, Strides f, Margins m) { pad(x, y, (u8)(c != 0), n, a, f, m); }

// Slices of x [outer, length, inner] in the order of the indices; the first index outside is reported.
template <typename T>
__device__ void gather(const T *x, const long long *indices, T *y, u32 n, u32 length, Divisor picked, Divisor inner, int *fault, int mark) {
    for (EACH(i, n)) {
        u32 row = quotient(i, inner), column = i - row * inner.by;
        u32 outer = quotient(row, picked);
        long long index = indices[row - outer * picked.by];
        if (index < 0) index += length;
        if (index < 0 || index >= length) {
            atomicCAS(fault, 0, mark);
            index = 0;
        }
        y[i] = x[((u64)outer * length + index) * inner.by + column];
    }
}

extern "C" __global__ void gather_real(const real *x, const long long *at, real *y, u32 n, u32 l, Divisor p, Divisor in, int *f, int m) { gather(x, at, y, n, l, p, in, f, m); }
extern "C" __global__ void gather_int(const long long *x, const long long *at, long long *y, u32 n, u32 l, Divisor p, Divisor in, int *f, int m) { gather(x, at, y, n, l, p, in, f, m); }
extern "C" __global__ void gather_bool(const u8 *x, const long long *at, u8 *y, u32 n, u32 l, Divisor p, Divisor in, int *f, int m) { gather(x, at, y, n, l, p, in, f, m); }

// One axis of x [outer, length, inner] at another resolution: `taps` weighted elements for each place.
extern "C" __global__ void resize(const real *x, real *y, const int *at, const real *weight, u32 n, u32 length, u32 taps, Divisor places, Divisor inner) {
    for (EACH(i, n)) {
        u32 row = quotient(i, inner), column = i - row * inner.by;
        u32 outer = quotient(row, places), to = row - outer * places.by;
        const real *from = x + (u64)outer * length * inner.by + column;
        real sum = 0;
        for (u32 t = 0; t < taps; ++t) {
            real w = weight[to * taps + t];
            if (w != 0) sum += from[(u64)at[to * taps + t] * inner.by] * w;
        }
        y[i] = sum;
    }
}

struct Pool {
    int input[3], output[3], kernel[3], stride[3], dilation[3], before[3], after[3];
    // 0: divided by what is covered, 1: by what is covered of the padded value, 2: not at all.
    int divisor;
    // What every sum is divided by, if it is the same number.
    int even;
    Divisor out[3], in[3];
};

__device__ __forceinline__ void apart(u32 i, const Divisor length[3], u32 &plane, int at[3]) {
    for (int axis = 2; axis >= 0; --axis) {
        u32 next = quotient(i, length[axis]);
        at[axis] = (int)(i - next * length[axis].by);
        i = next;
    }
    plane = i;
}

__device__ __forceinline__ u32 volume(const int n[3]) { return (u32)n[0] * n[1] * n[2]; }

// The taps [first, end) of a window at position p along an axis that lie inside.
__device__ __forceinline__ void inside(const Pool &w, int axis, int p, int &first, int &end) {
    int start = p * w.stride[axis] - w.before[axis], d = w.dilation[axis];
    first = start < 0 ? (-start + d - 1) / d : 0;
    int room = w.input[axis] - start;
    end = room <= 0 ? 0 : (room + d - 1) / d;
    if (end > w.kernel[axis]) end = w.kernel[axis];
}

__device__ __forceinline__ bool beats(real candidate, real best) {
    return candidate > best || (NAN_OF(candidate) && !NAN_OF(best));
}

// Where in its plane the first largest element under a window lies; -1 if the window covers only padding.
__device__ int winner(const real *a, const Pool &w, const int at[3]) {
    int first[3], end[3], found = -1;
    for (int axis = 0; axis < 3; ++axis) inside(w, axis, at[axis], first[axis], end[axis]);
    real best = 0;
    for (int i = first[0]; i < end[0]; ++i) {
        int z = at[0] * w.stride[0] - w.before[0] + i * w.dilation[0];
        for (int j = first[1]; j < end[1]; ++j) {
            int y = at[1] * w.stride[1] - w.before[1] + j * w.dilation[1];
            for (int k = first[2]; k < end[2]; ++k) {
                int x = at[2] * w.stride[2] - w.before[2] + k * w.dilation[2];
                int here = (z * w.input[1] + y) * w.input[2] + x;
                if (found < 0 || beats(a[here], best)) {
                    best = a[here];
                    found = here;
                }
            }
        }
    }
    return found;
}

extern "C" __global__ void max_pool(const real *a, real *y, u32 n, Pool w) {
    for (EACH(i, n)) {
        u32 plane;
        int at[3];
        apart(i, w.out, plane, at);
        const real *p = a + (u64)plane * volume(w.input);
        int won = winner(p, w, at);
        y[i] = won < 0 ? -INFINITY : p[won];
    }
}

extern "C" __global__ void winner_gather(const real *a, const real *s, real *y, u32 n, Pool w) {
    for (EACH(i, n)) {
        u32 plane;
        int at[3];
        apart(i, w.out, plane, at);
        u64 start = (u64)plane * volume(w.input);
        int won = winner(a + start, w, at);
        y[i] = won < 0 ? (real)0 : s[start + won];
    }
}

// The positions [first, last] of windows along an axis that may cover place p.
__device__ __forceinline__ void covering(const Pool &w, int axis, int p, int &first, int &last) {
    if (w.stride[axis] == w.kernel[axis] && w.dilation[axis] == 1 && w.before[axis] == 0) {
        first = p / w.stride[axis];
        last = first < w.output[axis] ? first : first - 1;
        return;
    }
    int span = (w.kernel[axis] - 1) * w.dilation[axis];
    int low = p + w.before[axis] - span;
    first = low <= 0 ? 0 : (low + w.stride[axis] - 1) / w.stride[axis];
    last = (p + w.before[axis]) / w.stride[axis];
    if (last > w.output[axis] - 1) last = w.output[axis] - 1;
}

// Where in its plane the winner of every window lies.
extern "C" __global__ void winner_index(const real *a, int *index, u32 n, Pool w) {
    for (EACH(i, n)) {
        u32 plane;
        int at[3];
        apart(i, w.out, plane, at);
        index[i] = winner(a + (u64)plane * volume(w.input), w, at);
    }
}

// Every place asks the windows that cover it whether it won: nothing is written twice.
extern "C" __global__ void winner_scatter(const int *index, const real *y, real *s, u32 n, Pool w) {
    for (EACH(i, n)) {
        u32 plane;
        int place[3], first[3], last[3];
        apart(i, w.in, plane, place);
        for (int axis = 0; axis < 3; ++axis) covering(w, axis, place[axis], first[axis], last[axis]);
        u32 base = plane * volume(w.output);
        int here = (place[0] * w.input[1] + place[1]) * w.input[2] + place[2];
        real sum = 0;
        for (int h = first[0]; h <= last[0]; ++h)
            for (int j = first[1]; j <= last[1]; ++j)
                for (int k = first[2]; k <= last[2]; ++k) {
                    u32 from = base + (h * w.output[1] + j) * w.output[2] + k;
                    if (index[from] == here) sum += y[from];
                }
        s[i] = sum;
    }
}

__device__ double divided_by(const Pool &w, const int at[3]) {
    if (w.even) return w.even;
    double count = 1;
    for (int axis = 0; axis < 3; ++axis) {
        int first, end, covered = 0;
        inside(w, axis, at[axis], first, end);
        if (w.divisor == 0) covered = end - first;
        else
            for (int k = 0; k < w.kernel[axis]; ++k)
                covered += at[axis] * w.stride[axis] + k * w.dilation[axis] < w.before[axis] + w.input[axis] + w.after[axis];
        count *= covered;
    }
    return count;
}

extern "C" __global__ void average_pool(const real *a, real *y, u32 n, Pool w) {
    for (EACH(i, n)) {
        u32 plane;
        int at[3], first[3], end[3];
        apart(i, w.out, plane, at);
        for (int axis = 0; axis < 3; ++axis) inside(w, axis, at[axis], first[axis], end[axis]);
        const real *p = a + (u64)plane * volume(w.input);
        double sum = 0;
        for (int h = first[0]; h < end[0]; ++h)
            for (int j = first[1]; j < end[1]; ++j)
                for (int k = first[2]; k < end[2]; ++k) {
                    int z = at[0] * w.stride[0] - w.before[0] + h * w.dilation[0];
                    int yy = at[1] * w.stride[1] - w.before[1] + j * w.dilation[1];
                    int x = at[2] * w.stride[2] - w.before[2] + k * w.dilation[2];
                    sum += p[(z * w.input[1] + yy) * w.input[2] + x];
                }
        y[i] = (real)(sum / divided_by(w, at));
    }
}

extern "C" __global__ void average_pool_transpose(const real *y, real *s, u32 n, Pool w) {
    for (EACH(i, n)) {
        u32 plane;
        int place[3], first[3], last[3], at[3];
        apart(i, w.in, plane, place);
        for (int axis = 0; axis < 3; ++axis) covering(w, axis, place[axis], first[axis], last[axis]);
        double sum = 0;
        for (at[0] = first[0]; at[0] <= last[0]; ++at[0])
            for (at[1] = first[1]; at[1] <= last[1]; ++at[1])
                for (at[2] = first[2]; at[2] <= last[2]; ++at[2]) {
                    bool covers = true;
                    for (int axis = 0; axis < 3; ++axis)
                        covers = covers && (w.dilation[axis] == 1 || (place[axis] + w.before[axis] - at[axis] * w.stride[axis]) % w.dilation[axis] == 0);
                    if (covers)
                        sum += (double)y[(((u64)plane * w.output[0] + at[0]) * w.output[1] + at[1]) * w.output[2] + at[2]] / divided_by(w, at);
                }
        s[i] = (real)sum;
    }
}

// Reductions. 0 sum, 1 mean, 2 maximum, 3 minimum, 4 product. Sums of real numbers are taken in double precision.
struct Reduction {
    int how;
    // Elements reduced to one, and into how many parts they are cut.
    u32 count, parts;
    Axes kept, gone;
    Strides of_kept, of_gone;
};

// The place of the k-th of the elements that are reduced to one; they often lie at equal distances.
__device__ __forceinline__ long long along(u32 k, const Reduction &r) {
    return r.gone.rank <= 1 ? k * r.of_gone.along[0] : place(k, r.gone, r.of_gone);
}

template <typename T, typename S>
__device__ __forceinline__ S joined(int how, S a, S b) {
    switch (how) {
    case 2: return b > a || NAN_OF(b) ? b : a;
    case 3: return b < a || NAN_OF(b) ? b : a;
    case 4: return a * b;
    default: return a + b;
    }
}

template <typename S>
__device__ __forceinline__ S nothing(int how, S low, S high) {
    return how == 2 ? low : how == 3 ? high : how == 4 ? (S)1 : (S)0;
}

// One thread for each element of the result: for few elements reduced, or many results.
template <typename T, typename S>
__device__ void reduce_each(const T *x, T *y, u32 n, const Reduction &r, S low, S high) {
    for (EACH(i, n)) {
        long long start = place(i, r.kept, r.of_kept);
        S found = nothing<S>(r.how, low, high);
        for (u32 k = 0; k < r.count; ++k) found = joined<T, S>(r.how, found, (S)x[start + along(k, r)]);
        y[i] = (T)(r.how == 1 ? found / (S)r.count : found);
    }
}

// One block for each part of each element of the result.
template <typename T, typename S>
__device__ void reduce_block(const T *x, S *partial, T *y, u32 n, const Reduction &r, S low, S high) {
    __shared__ S shared[256];
    for (u32 job = blockIdx.x; job < n * r.parts; job += gridDim.x) {
        u32 i = job / r.parts, part = job % r.parts;
        u32 each = (r.count + r.parts - 1) / r.parts, first = part * each;
        u32 end = first + each < r.count ? first + each : r.count;
        long long start = place(i, r.kept, r.of_kept);
        S found = nothing<S>(r.how, low, high);
        for (u32 k = first + threadIdx.x; k < end; k += blockDim.x)
            found = joined<T, S>(r.how, found, (S)x[start + along(k, r)]);
        shared[threadIdx.x] = found;
        __syncthreads();
        for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) shared[threadIdx.x] = joined<T, S>(r.how, shared[threadIdx.x], shared[threadIdx.x + half]);
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            if (r.parts > 1) partial[job] = shared[0];
            else y[i] = (T)(r.how == 1 ? shared[0] / (S)r.count : shared[0]);
        }
        __syncthreads();
    }
}

template <typename T, typename S>
__device__ void reduce_parts(const S *partial, T *y, u32 n, const Reduction &r, S low, S high) {
    for (EACH(i, n)) {
        S found = nothing<S>(r.how, low, high);
        for (u32 k = 0; k < r.parts; ++k) found = joined<T, S>(r.how, found, partial[(u64)i * r.parts + k]);
        y[i] = (T)(r.how == 1 ? found / (S)r.count : found);
    }
}

// Neighbouring elements of the result have neighbours in x: a row of 32 threads reads them together, 8 or 32 rows share
// what is reduced to one.
template <typename T, typename S>
__device__ void reduce_columns(const T *x, T *y, u32 n, u32 rows, const Reduction &r, S low, S high) {
    __shared__ S shared[1024];
    u32 lane = threadIdx.x % 32, row = threadIdx.x / 32;
    for (u32 first = blockIdx.x * 32; first < n; first += gridDim.x * 32) {
        u32 i = first + lane;
        S found = nothing<S>(r.how, low, high);
        if (i < n) {
            long long start = place(i, r.kept, r.of_kept);
#pragma unroll 4
            for (u32 k = row; k < r.count; k += rows) found = joined<T, S>(r.how, found, (S)x[start + along(k, r)]);
        }
        shared[threadIdx.x] = found;
        __syncthreads();
        for (u32 half = rows / 2; half > 0; half /= 2) {
            if (row < half) shared[threadIdx.x] = joined<T, S>(r.how, shared[threadIdx.x], shared[threadIdx.x + half * 32]);
            __syncthreads();
        }
        if (row == 0 && i < n) y[i] = (T)(r.how == 1 ? shared[lane] / (S)r.count : shared[lane]);
        __syncthreads();
    }
}

#define LEAST (-9223372036854775807LL - 1)
#define MOST 9223372036854775807LL
extern "C" __global__ void reduce_each_real(const real *x, real *y, u32 n, Reduction r) { reduce_each<real, double>(x, y, n, r, -INFINITY, INFINITY); }
extern "C" __global__ void reduce_each_int(const long long *x, long long *y, u32 n, Reduction r) { reduce_each<long long, long long>(x, y, n, r, LEAST, MOST); }
extern "C" __global__ void reduce_columns_real(const real *x, real *y, u32 n, u32 rows, Reduction r) { reduce_columns<real, double>(x, y, n, rows, r, -INFINITY, INFINITY); }
extern "C" __global__ void reduce_columns_int(const long long *x, long long *y, u32 n, u32 rows, Reduction r) { reduce_columns<long long, long long>(x, y, n, rows, r, LEAST, MOST); }
extern "C" __global__ void reduce_block_real(const real *x, double *p, real *y, u32 n, Reduction r) { reduce_block<real, double>(x, p, y, n, r, -INFINITY, INFINITY); }
extern "C" __global__ void reduce_block_int(const long long *x, long long *p, long long *y, u32 n, Reduction r) { reduce_block<long long, long long>(x, p, y, n, r, LEAST, MOST); }
extern "C" __global__ void reduce_parts_real(const double *p, real *y, u32 n, Reduction r) { reduce_parts<real, double>(p, y, n, r, -INFINITY, INFINITY); }
extern "C" __global__ void reduce_parts_int(const long long *p, long long *y, u32 n, Reduction r) { reduce_parts<long long, long long>(p, y, n, r, LEAST, MOST); }

// The index of the first largest element of x [outer, length, inner] along the middle; one block for each.
template <typename T>
__device__ void arg_max(const T *x, long long *y, u32 n, u32 length, const Divisor &inner) {
    __shared__ T best[256];
    __shared__ u32 index[256];
    for (u32 i = blockIdx.x; i < n; i += gridDim.x) {
        u32 outer = quotient(i, inner), column = i - outer * inner.by;
        const T *from = x + (u64)outer * length * inner.by + column;
        u32 at = threadIdx.x < length ? threadIdx.x : 0;
        T top = from[(u64)at * inner.by];
        for (u32 k = at + blockDim.x; k < length; k += blockDim.x) {
            T v = from[(u64)k * inner.by];
            if (v > top || (NAN_OF(v) && !NAN_OF(top))) {
                top = v;
                at = k;
            }
        }
        best[threadIdx.x] = top;
        index[threadIdx.x] = at;
        __syncthreads();
        for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) {
                T mine = best[threadIdx.x], other = best[threadIdx.x + half];
                u32 its = index[threadIdx.x + half];
                bool wins = other > mine || (NAN_OF(other) && !NAN_OF(mine));
                bool ties = other == mine || (NAN_OF(other) && NAN_OF(mine));
                if (wins || (ties && its < index[threadIdx.x])) {
                    best[threadIdx.x] = other;
                    index[threadIdx.x] = its;
                }
            }
            __syncthreads();
        }
        if (threadIdx.x == 0) y[i] = index[0];
        __syncthreads();
    }
}

extern "C" __global__ void arg_max_real(const real *x, long long *y, u32 n, u32 l, Divisor inner) { arg_max(x, y, n, l, inner); }
extern "C" __global__ void arg_max_int(const long long *x, long long *y, u32 n, u32 l, Divisor inner) { arg_max(x, y, n, l, inner); }

// Single precision as bfloat16, rounded to nearest, and back.
extern "C" __global__ void to_bfloat16(const float *x, unsigned short *y, u32 n) {
    for (EACH(i, n)) {
        u32 bits = __float_as_uint(x[i]);
        y[i] = NAN_OF(x[i]) ? 0x7fc0 : (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    }
}

extern "C" __global__ void from_bfloat16(const unsigned short *x, float *y, u32 n) {
    for (EACH(i, n)) y[i] = __uint_as_float((u32)x[i] << 16);
}
