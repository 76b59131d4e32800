// Definitions that every kernel source begins with. `real` is the floating-point type of the program.

typedef unsigned int u32;
typedef unsigned char u8;
typedef unsigned long long u64;

#define RANK 8
#define INFINITY __int_as_float(0x7f800000)
#define NAN_OF(x) ((x) != (x))
#define EACH(i, n) u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x

// A divisor that is known before the kernel is launched: a division is a multiplication and a shift. For dividends below 2^31.
struct Divisor {
    u32 by, factor, shift;
};

__device__ __forceinline__ u32 quotient(u32 n, const Divisor &d) {
    return (__umulhi(n, d.factor) + n) >> d.shift;
}

// The stride in elements of each axis of a value.
struct Strides {
    long long along[RANK];
};

struct Axes {
    int rank;
    Divisor length[RANK];
};

__device__ __forceinline__ long long place(u32 i, const Axes &axes, const Strides &strides) {
    long long at = 0;
    for (int axis = axes.rank - 1; axis >= 0; --axis) {
        u32 next = quotient(i, axes.length[axis]);
        at += (long long)(i - next * axes.length[axis].by) * strides.along[axis];
        i = next;
    }
    return at;
}

// Four adjacent elements, loaded and stored at once.
template <typename T>
struct alignas(sizeof(T) >= 4 ? 16 : sizeof(T) * 4) Four {
    T at[4];
};

template <typename T>
__device__ __forceinline__ const Four<T> &four(const T *p, u32 i) { return *(const Four<T> *)(p + i); }
template <typename T>
__device__ __forceinline__ Four<T> &four(T *p, u32 i) { return *(Four<T> *)(p + i); }

// Four elements of a broadcast value, along the last axis.
template <typename T>
__device__ __forceinline__ Four<T> repeated(const T *p, u32 i, const Axes &axes, const Strides &strides) {
    const T *from = p + place(i, axes, strides);
    long long step = strides.along[axes.rank - 1];
    Four<T> read;
    if (step == 0) {
        T one = from[0];
        for (int k = 0; k < 4; ++k) read.at[k] = one;
    } else
        for (int k = 0; k < 4; ++k) read.at[k] = from[k * step];
    return read;
}

// Reductions. 0 sum, 1 mean, 2 maximum, 3 minimum, 4 product. Sums of real numbers are taken in double precision.
struct Reduction {
    int how;
    // Elements per result, and the number of parts they are split into.
    u32 count, parts;
    Axes kept, reduced;
    Strides of_kept, of_reduced;
};

// The offset of the k-th element of a result. With one reduced axis it is a multiple of the stride.
__device__ __forceinline__ long long along(u32 k, const Reduction &r) {
    return r.reduced.rank <= 1 ? k * r.of_reduced.along[0] : place(k, r.reduced, r.of_reduced);
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

// Combines the values of `rows` adjacent threads of a warp; the first of them has the result.
template <typename T, typename S>
__device__ __forceinline__ S joined_rows(int how, S found, u32 rows) {
    for (u32 half = rows / 2; half > 0; half /= 2) found = joined<T, S>(how, found, __shfl_xor_sync(0xffffffffu, found, half));
    return found;
}

__device__ __forceinline__ real limited(real x, real min, real max) {
    real raised = x < min ? min : x;
    return raised > max ? max : raised;
}

// The number nearest to x with `dropped` bits fewer than a float has, ties to even; spacing at least 2^least.
__device__ __forceinline__ float rounded_to(float x, int dropped, int least, float largest) {
    if (!(fabsf(x) < INFINITY)) return x;
    int exponent;
    frexpf(x, &exponent);
    int spacing = exponent - 24 + dropped > least ? exponent - 24 + dropped : least;
    float rounded = ldexpf(rintf(ldexpf(x, -spacing)), spacing);
    return fabsf(rounded) > largest ? copysignf(INFINITY, x) : rounded;
}

// The integer between min and max that differs from x by a multiple of their distance plus one.
__device__ __forceinline__ long long wrapped(long long x, long long min, long long max) {
    long long count = max - min + 1, rest = (x % count - min % count) % count;
    return min + (rest < 0 ? rest + count : rest);
}

__device__ __forceinline__ long long limited_whole(long long x, long long min, long long max) {
    long long raised = x < min ? min : x;
    return raised > max ? max : raised;
}

__device__ __forceinline__ real softplus(real x) { return (x < 0 ? (real)0 : x) + log1p(exp(-fabs(x))); }

__device__ __forceinline__ real gelu_tanh(double x) {
    return (real)(0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))));
}

// Squares are exact products.
__device__ __forceinline__ real power(real a, real b) { return b == 2 ? a * a : pow(a, b); }

__device__ long long whole_power(long long base, long long exponent) {
    if (exponent < 0) return (long long)pow((double)base, (double)exponent);
    u64 result = 1, factor = (u64)base;
    for (u64 left = (u64)exponent; left; left >>= 1) {
        if (left & 1) result *= factor;
        factor *= factor;
    }
    return (long long)result;
}

// Rounds towards zero. Values out of range saturate, NaN is zero.
__device__ __forceinline__ long long truncated(double x) {
    if (x != x) return 0;
    if (x >= 9223372036854775807.0) return 9223372036854775807LL;
    if (x <= -9223372036854775808.0) return -9223372036854775807LL - 1;
    return (long long)x;
}

__device__ __forceinline__ long long quotient_of(long long a, long long b) {
    return b == 0 ? 0 : b == -1 ? (long long)(0ULL - (u64)a) : a / b;
}
