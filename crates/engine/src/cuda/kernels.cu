// All kernels that are neither convolutions, nor matrix products, nor elementwise. `real` is the floating-point type of the
// program. Every kernel computes each element of its result in a fixed order, so that results are the same at every run.

template <typename T>
__device__ void copy(const T *x, T *y, u32 count, const Axes &axes, const Strides &from, const Strides &to) {
    for (EACH(i, count)) y[place(i, axes, to)] = x[place(i, axes, from)];
}

extern "C" __global__ void copy_real(const real *x, real *y, u32 n, Axes a, Strides f, Strides t) { copy(x, y, n, a, f, t); }
extern "C" __global__ void copy_int(const long long *x, long long *y, u32 n, Axes a, Strides f, Strides t) { copy(x, y, n, a, f, t); }
extern "C" __global__ void copy_bool(const u8 *x, u8 *y, u32 n, Axes a, Strides f, Strides t) { copy(x, y, n, a, f, t); }

// Padding of x. Modes: 0 a constant, 1 reflected, 2 the edge.
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

// Gathers slices of x [outer, length, inner] by index. An index out of range is reported in `fault`.
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

// Resizes one axis of x [outer, length, inner]: each result is the weighted sum of `taps` elements.
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
    // Divisor of a mean: 0 the covered elements of the input, 1 those of the padded input, 2 none.
    int divisor;
    // The divisor of every sum, if it is the same for all; else 0.
    int even;
    Divisor out[3], in[3];
    // The number of channels that are adjacent at each position; 1 if each channel has a plane of its own.
    Divisor adjacent;
};

// A window. With K > 0, kernel size K and stride S along two axes without dilation are known at compile time. With K = 0 they
// are not, and there may be three axes.
template <int K, int S>
struct Window {
    const Pool &w;
    __device__ __forceinline__ int kernel(int axis) const { return K == 0 ? w.kernel[axis] : axis == 0 ? 1 : K; }
    __device__ __forceinline__ int stride(int axis) const { return K == 0 ? w.stride[axis] : axis == 0 ? 1 : S; }
    __device__ __forceinline__ int dilation(int axis) const { return K == 0 ? w.dilation[axis] : 1; }
    __device__ __forceinline__ int before(int axis) const { return K != 0 && axis == 0 ? 0 : w.before[axis]; }
    __device__ __forceinline__ int input(int axis) const { return K != 0 && axis == 0 ? 1 : w.input[axis]; }
    __device__ __forceinline__ int output(int axis) const { return K != 0 && axis == 0 ? 1 : w.output[axis]; }
    __device__ __forceinline__ u32 inputs() const { return (u32)input(0) * input(1) * input(2); }
    __device__ __forceinline__ u32 outputs() const { return (u32)output(0) * output(1) * output(2); }
    __device__ __forceinline__ int start(int axis, int p) const { return p * stride(axis) - before(axis); }

    // Sets `at` to the position of element i in its plane, which has the side lengths `length`. Returns the offset of the same
    // plane in a value whose planes have `size` elements. Adjacent positions are `adjacent` elements apart.
    __device__ __forceinline__ u64 apart(u32 i, const Divisor length[3], u32 size, int at[3]) const {
        u32 rest = quotient(i, w.adjacent), channel = i - rest * w.adjacent.by;
#pragma unroll
        for (int axis = 2; axis >= (K == 0 ? 0 : 1); --axis) {
            u32 next = quotient(rest, length[axis]);
            at[axis] = (int)(rest - next * length[axis].by);
            rest = next;
        }
        if (K != 0) at[0] = 0;
        return (u64)rest * size * w.adjacent.by + channel;
    }
    __device__ __forceinline__ u32 adjacent() const { return w.adjacent.by; }

    // The taps [first, end) of the window at position p along an axis that lie inside the input.
    __device__ __forceinline__ void inside(int axis, int p, int &first, int &end) const {
        int from = start(axis, p), d = dilation(axis);
        first = from < 0 ? (-from + d - 1) / d : 0;
        int room = input(axis) - from;
        end = room <= 0 ? 0 : (room + d - 1) / d;
        if (end > kernel(axis)) end = kernel(axis);
    }

    // The positions [first, last] along an axis whose windows may cover input position p.
    __device__ __forceinline__ void covering(int axis, int p, int &first, int &last) const {
        int low = p + before(axis) - (kernel(axis) - 1) * dilation(axis);
        first = low <= 0 ? 0 : (low + stride(axis) - 1) / stride(axis);
        last = (p + before(axis)) / stride(axis);
        if (last > output(axis) - 1) last = output(axis) - 1;
    }

    // Calls `each` with the index in the plane of every element under the window at `at`.
    template <typename Each>
    __device__ __forceinline__ void under(const int at[3], Each each) const {
        int first[3], end[3];
#pragma unroll
        for (int axis = 0; axis < 3; ++axis) inside(axis, at[axis], first[axis], end[axis]);
        for (int i = first[0]; i < end[0]; ++i)
            for (int j = first[1]; j < end[1]; ++j)
                for (int k = first[2]; k < end[2]; ++k) {
                    int z = start(0, at[0]) + i * dilation(0), y = start(1, at[1]) + j * dilation(1);
                    each((z * input(1) + y) * input(2) + start(2, at[2]) + k * dilation(2));
                }
    }

    // Calls `each` with the position of every window that may cover an input position, and its index in the plane.
    template <typename Each>
    __device__ __forceinline__ void over(const int place[3], Each each) const {
        int first[3], last[3], at[3];
#pragma unroll
        for (int axis = 0; axis < 3; ++axis) covering(axis, place[axis], first[axis], last[axis]);
        for (at[0] = first[0]; at[0] <= last[0]; ++at[0])
            for (at[1] = first[1]; at[1] <= last[1]; ++at[1])
                for (at[2] = first[2]; at[2] <= last[2]; ++at[2]) each(at, (at[0] * output(1) + at[1]) * output(2) + at[2]);
    }

    // The index in its plane of the first maximum under a window; -1 if the window covers only padding.
    __device__ __forceinline__ int winner(const real *a, const int at[3]) const {
        int found = -1;
        real best = 0;
        under(at, [&](int here) {
            real candidate = a[here * adjacent()];
            if (found < 0 || candidate > best || (NAN_OF(candidate) && !NAN_OF(best))) {
                best = candidate;
                found = here;
            }
        });
        return found;
    }

    __device__ double divided_by(const int at[3]) const {
        if (w.even) return w.even;
        double count = 1;
        for (int axis = 0; axis < 3; ++axis) {
            int first, end, covered = 0;
            inside(axis, at[axis], first, end);
            if (w.divisor == 0) covered = end - first;
            else
                for (int k = 0; k < kernel(axis); ++k)
                    covered += at[axis] * stride(axis) + k * dilation(axis) < before(axis) + input(axis) + w.after[axis];
            count *= covered;
        }
        return count;
    }
};

template <int K, int S>
__device__ void max_pool(const real *a, real *y, u32 n, const Pool &pool) {
    Window<K, S> w{pool};
    for (EACH(i, n)) {
        int at[3];
        const real *p = a + w.apart(i, pool.out, w.inputs(), at);
        int won = w.winner(p, at);
        y[i] = won < 0 ? -INFINITY : p[won * w.adjacent()];
    }
}

template <int K, int S>
__device__ void winner_gather(const real *a, const real *s, real *y, u32 n, const Pool &pool) {
    Window<K, S> w{pool};
    for (EACH(i, n)) {
        int at[3];
        u64 start = w.apart(i, pool.out, w.inputs(), at);
        int won = w.winner(a + start, at);
        y[i] = won < 0 ? (real)0 : s[start + won * w.adjacent()];
    }
}

// The index in its plane of the maximum of every window.
template <int K, int S>
__device__ void winner_index(const real *a, int *index, u32 n, const Pool &pool) {
    Window<K, S> w{pool};
    for (EACH(i, n)) {
        int at[3];
        u64 start = w.apart(i, pool.out, w.inputs(), at);
        index[i] = w.winner(a + start, at);
    }
}

// Every input position looks up the maxima of the windows that cover it, so that each element is written once.
template <int K, int S>
__device__ void winner_scatter(const int *index, const real *y, real *s, u32 n, const Pool &pool) {
    Window<K, S> w{pool};
    for (EACH(i, n)) {
        int place[3];
        u64 base = w.apart(i, pool.in, w.outputs(), place);
        int here = (place[0] * w.input(1) + place[1]) * w.input(2) + place[2];
        real sum = 0;
        w.over(place, [&](const int *, int window) {
            u64 at = base + window * w.adjacent();
            if (index[at] == here) sum += y[at];
        });
        s[i] = sum;
    }
}

// The same for 2x2 windows that tile the input: every window writes its own elements.
extern "C" __global__ void winner_scatter_tiles(const real *a, const real *y, real *s, u32 n, Pool pool) {
    struct alignas(2 * sizeof(real)) Two { real at[2]; };
    u32 adjacent = pool.adjacent.by, width = (u32)pool.input[2] * adjacent;
    for (EACH(i, n)) {
        u32 place = quotient(i, pool.adjacent), channel = i - place * adjacent;
        u32 row = quotient(place, pool.out[2]), column = place - row * pool.out[2].by;
        u64 top = (u64)row * 2 * width + 2 * column * adjacent + channel;
        alignas(2 * sizeof(real)) real values[4];
        if (adjacent == 1) {
            *(Two *)values = *(const Two *)(a + top);
            *(Two *)(values + 2) = *(const Two *)(a + top + width);
        } else
#pragma unroll
            for (int k = 0; k < 4; ++k) values[k] = a[top + (k / 2) * width + (k % 2) * adjacent];
        int found = 0;
#pragma unroll
        for (int k = 1; k < 4; ++k)
            if (values[k] > values[found] || (NAN_OF(values[k]) && !NAN_OF(values[found]))) found = k;
        real won = y[i];
#pragma unroll
        for (int k = 0; k < 4; ++k) values[k] = found == k ? won : (real)0;
        if (adjacent == 1) {
            *(Two *)(s + top) = *(const Two *)values;
            *(Two *)(s + top + width) = *(const Two *)(values + 2);
        } else
#pragma unroll
            for (int k = 0; k < 4; ++k) s[top + (k / 2) * width + (k % 2) * adjacent] = values[k];
    }
}

template <int K, int S>
__device__ void average_pool(const real *a, real *y, u32 n, const Pool &pool) {
    Window<K, S> w{pool};
    for (EACH(i, n)) {
        int at[3];
        const real *p = a + w.apart(i, pool.out, w.inputs(), at);
        double sum = 0;
        w.under(at, [&](int here) { sum += p[here * w.adjacent()]; });
        y[i] = (real)(sum / w.divided_by(at));
    }
}

template <int K, int S>
__device__ void average_pool_transpose(const real *y, real *s, u32 n, const Pool &pool) {
    Window<K, S> w{pool};
    for (EACH(i, n)) {
        int place[3];
        const real *p = y + w.apart(i, pool.in, w.outputs(), place);
        double sum = 0;
        w.over(place, [&](const int *at, int window) {
            bool covers = true;
#pragma unroll
            for (int axis = 0; axis < 3; ++axis)
                covers = covers && (w.dilation(axis) == 1 || (place[axis] - w.start(axis, at[axis])) % w.dilation(axis) == 0);
            double read = p[window * w.adjacent()];
            if (covers) sum += pool.even ? read : read / w.divided_by(at);
        });
        s[i] = (real)(pool.even ? sum / pool.even : sum);
    }
}

#define POOLS(name, K, S) \
    extern "C" __global__ void max_pool##name(const real *a, real *y, u32 n, Pool w) { max_pool<K, S>(a, y, n, w); } \
    extern "C" __global__ void winner_gather##name(const real *a, const real *s, real *y, u32 n, Pool w) { winner_gather<K, S>(a, s, y, n, w); } \
    extern "C" __global__ void winner_index##name(const real *a, int *index, u32 n, Pool w) { winner_index<K, S>(a, index, n, w); } \
    extern "C" __global__ void winner_scatter##name(const int *index, const real *y, real *s, u32 n, Pool w) { winner_scatter<K, S>(index, y, s, n, w); } \
    extern "C" __global__ void average_pool##name(const real *a, real *y, u32 n, Pool w) { average_pool<K, S>(a, y, n, w); } \
    extern "C" __global__ void average_pool_transpose##name(const real *y, real *s, u32 n, Pool w) { average_pool_transpose<K, S>(y, s, n, w); }
POOLS(, 0, 0)
POOLS(_2_2, 2, 2)
POOLS(_3_2, 3, 2)

// The second half of a transposed convolution (col2im): every element of the result adds the products
// [samples, channels * taps, positions] that fall on it.
template <int K, int S>
__device__ void fold(const real *products, real *y, u32 n, const Pool &pool) {
    Window<K, S> w{pool};
    u32 taps = (u32)w.kernel(0) * w.kernel(1) * w.kernel(2);
    for (EACH(i, n)) {
        int place[3];
        const real *p = products + w.apart(i, pool.in, w.outputs(), place) * taps;
        real sum = 0;
        w.over(place, [&](const int *at, int window) {
            int tap = 0;
            bool covers = true;
#pragma unroll
            for (int axis = 0; axis < 3; ++axis) {
                int distance = place[axis] - w.start(axis, at[axis]);
                covers = covers && distance % w.dilation(axis) == 0;
                tap = tap * w.kernel(axis) + distance / w.dilation(axis);
            }
            if (covers) sum += p[tap * w.outputs() + window];
        });
        y[i] = sum;
    }
}

extern "C" __global__ void fold(const real *p, real *y, u32 n, Pool w) { fold<0, 0>(p, y, n, w); }
extern "C" __global__ void fold_3_1(const real *p, real *y, u32 n, Pool w) { fold<3, 1>(p, y, n, w); }
extern "C" __global__ void fold_7_2(const real *p, real *y, u32 n, Pool w) { fold<7, 2>(p, y, n, w); }

// One thread per result: for few elements per result, or many results.
template <typename T, typename S>
__device__ void reduce_each(const T *x, T *y, u32 n, const Reduction &r, S low, S high) {
    for (EACH(i, n)) {
        long long start = place(i, r.kept, r.of_kept);
        S found = nothing<S>(r.how, low, high);
        for (u32 k = 0; k < r.count; ++k) found = joined<T, S>(r.how, found, (S)x[start + along(k, r)]);
        y[i] = (T)(r.how == 1 ? found / (S)r.count : found);
    }
}

// Combines the values of `rows` rows of threads, each `width` threads wide, column by column in a fixed order. All threads of
// a column get the result. Every thread of the block calls this; a block has at most 1024 threads.
template <typename T, typename S>
__device__ S joined_columns(int how, S found, u32 rows, u32 width) {
    __shared__ S shared[1024];
    shared[threadIdx.x] = found;
    __syncthreads();
    for (u32 half = rows / 2; half > 0; half /= 2) {
        if (threadIdx.x < half * width) shared[threadIdx.x] = joined<T, S>(how, shared[threadIdx.x], shared[threadIdx.x + half * width]);
        __syncthreads();
    }
    S whole = shared[threadIdx.x % width];
    __syncthreads();
    return whole;
}

// Whether this block is the last of `count` blocks to increment a counter. The last block sees what the first threads of the
// others wrote before. The counter is back at its initial value then.
__device__ bool comes_last(u32 *counter, u32 count) {
    bool last = false;
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicInc(counter, count - 1) == count - 1;
        __threadfence();
    }
    return __syncthreads_or(last);
}

// One block for each part of each result; the last block of a result combines its parts.
template <typename T, typename S>
__device__ void reduce_block(const T *x, S *partial, u32 *counters, T *y, u32 n, const Reduction &r, S low, S high) {
    for (u32 job = blockIdx.x; job < n * r.parts; job += gridDim.x) {
        u32 i = job / r.parts, part = job % r.parts;
        u32 each = (r.count + r.parts - 1) / r.parts, first = part * each;
        u32 end = first + each < r.count ? first + each : r.count;
        long long start = place(i, r.kept, r.of_kept);
        S found = nothing<S>(r.how, low, high);
        for (u32 k = first + threadIdx.x; k < end; k += blockDim.x)
            found = joined<T, S>(r.how, found, (S)x[start + along(k, r)]);
        found = joined_columns<T, S>(r.how, found, blockDim.x, 1);
        if (r.parts > 1) {
            if (threadIdx.x == 0) partial[job] = found;
            if (!comes_last(counters + i, r.parts)) continue;
            found = nothing<S>(r.how, low, high);
            for (u32 k = threadIdx.x; k < r.parts; k += blockDim.x) found = joined<T, S>(r.how, found, partial[(u64)i * r.parts + k]);
            found = joined_columns<T, S>(r.how, found, blockDim.x, 1);
        }
        if (threadIdx.x == 0) y[i] = (T)(r.how == 1 ? found / (S)r.count : found);
    }
}

// The elements of one result are adjacent, and `rows` threads of a warp reduce them, four at a time if `wide`.
extern "C" __global__ void reduce_neighbours(const real *x, real *y, u32 n, u32 rows, u32 wide, Reduction r) {
    u32 width = blockDim.x / rows, row = threadIdx.x % rows;
    for (u32 first = blockIdx.x * width; first < n; first += gridDim.x * width) {
        u32 i = first + threadIdx.x / rows;
        double found = nothing<double>(r.how, -(double)INFINITY, (double)INFINITY);
        if (i < n) {
            u32 start = (u32)place(i, r.kept, r.of_kept);
            if (wide)
                for (u32 c = row * 4; c < r.count; c += rows * 4) {
                    Four<real> read = four(x, start + c);
#pragma unroll
                    for (u32 k = 0; k < 4; ++k) found = joined<real, double>(r.how, found, (double)read.at[k]);
                }
            else
                for (u32 c = row; c < r.count; c += rows) found = joined<real, double>(r.how, found, (double)x[start + c]);
        }
        found = joined_rows<real, double>(r.how, found, rows);
        if (row == 0 && i < n) y[i] = (real)(r.how == 1 ? found / (double)r.count : found);
    }
}

// Transposes matrices [rows, columns] in tiles, so that reads and writes are coalesced.
extern "C" __global__ void transpose_tiles(const real *x, real *y, u32 matrices, u32 rows, u32 columns) {
    __shared__ real tile[32][33];
    u32 across = (columns + 31) / 32, tiles = across * ((rows + 31) / 32);
    u32 lane = threadIdx.x % 32, line = threadIdx.x / 32, lines = blockDim.x / 32;
    for (u32 t = blockIdx.x; t < matrices * tiles; t += gridDim.x) {
        u32 matrix = t / tiles, left = t % tiles % across * 32, top = t % tiles / across * 32;
        const real *from = x + (u64)matrix * rows * columns;
        real *to = y + (u64)matrix * rows * columns;
        for (u32 k = line; k < 32; k += lines)
            if (top + k < rows && left + lane < columns) tile[k][lane] = from[(top + k) * columns + left + lane];
        __syncthreads();
        for (u32 k = line; k < 32; k += lines)
            if (left + k < columns && top + lane < rows) to[(left + k) * rows + top + lane] = tile[lane][k];
        __syncthreads();
    }
}

// Adjacent results have adjacent elements in x: a row of threads reads them together. If there are few results, several rows
// reduce each.
template <typename T, typename S>
__device__ void reduce_columns(const T *x, T *y, u32 n, u32 rows, const Reduction &r, S low, S high) {
    u32 width = blockDim.x / rows, lane = threadIdx.x % width, row = threadIdx.x / width;
    for (u32 first = blockIdx.x * width; first < n; first += gridDim.x * width) {
        u32 i = first + lane;
        S found = nothing<S>(r.how, low, high);
        if (i < n) {
            long long start = place(i, r.kept, r.of_kept);
#pragma unroll 4
            for (u32 k = row; k < r.count; k += rows) found = joined<T, S>(r.how, found, (S)x[start + along(k, r)]);
        }
        found = joined_columns<T, S>(r.how, found, rows, width);
        if (row == 0 && i < n) y[i] = (T)(r.how == 1 ? found / (S)r.count : found);
    }
}

#define LEAST (-9223372036854775807LL - 1)
#define MOST 9223372036854775807LL
extern "C" __global__ void reduce_each_real(const real *x, real *y, u32 n, Reduction r) { reduce_each<real, double>(x, y, n, r, -INFINITY, INFINITY); }
extern "C" __global__ void reduce_each_int(const long long *x, long long *y, u32 n, Reduction r) { reduce_each<long long, long long>(x, y, n, r, LEAST, MOST); }
extern "C" __global__ void reduce_columns_real(const real *x, real *y, u32 n, u32 rows, Reduction r) { reduce_columns<real, double>(x, y, n, rows, r, -INFINITY, INFINITY); }
extern "C" __global__ void reduce_columns_int(const long long *x, long long *y, u32 n, u32 rows, Reduction r) { reduce_columns<long long, long long>(x, y, n, rows, r, LEAST, MOST); }
extern "C" __global__ void reduce_block_real(const real *x, double *p, u32 *c, real *y, u32 n, Reduction r) { reduce_block<real, double>(x, p, c, y, n, r, -INFINITY, INFINITY); }
extern "C" __global__ void reduce_block_int(const long long *x, long long *p, u32 *c, long long *y, u32 n, Reduction r) { reduce_block<long long, long long>(x, p, c, y, n, r, LEAST, MOST); }

// The index of the first maximum of x [outer, length, inner] along the middle axis; one block per result.
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

// Converts single precision to bfloat16, rounded to nearest, and back.
extern "C" __global__ void to_bfloat16(const float *x, unsigned short *y, u32 n) {
    for (EACH(i, n)) {
        u32 bits = __float_as_uint(x[i]);
        y[i] = NAN_OF(x[i]) ? 0x7fc0 : (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    }
}

extern "C" __global__ void from_bfloat16(const unsigned short *x, float *y, u32 n) {
    for (EACH(i, n)) y[i] = __uint_as_float((u32)x[i] << 16);
}
