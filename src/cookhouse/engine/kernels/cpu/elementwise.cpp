// What lies between the matrix products of a decoder layer, and the softmax over the vocabulary: one pass over memory each.
//
// Numbers are fp32 or bf16 and computed in fp32. Rows are independent of one another.

#include "lanes.h"

namespace {

// y = x · weight / rms(x); y may be x.
inline void normalize(const float* x, const float* weight, float eps, int64_t n, float* y) {
    float factor = 1.0f / std::sqrt(dot(x, x, n) / float(n) + eps);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(y + i, load(x + i) * factor * load(weight + i));
    for (; i < n; ++i) y[i] = x[i] * factor * weight[i];
}

// dx = f · (w dy) - x · f³ · mean(x w dy), f = 1 / rms(x). `dy` is overwritten with w dy; dx may be dy.
inline void normalize_backward(const float* x, const float* weight, float eps, int64_t n, float* dy, float* dx) {
    float factor = 1.0f / std::sqrt(dot(x, x, n) / float(n) + eps);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(dy + i, load(dy + i) * load(weight + i));
    for (; i < n; ++i) dy[i] *= weight[i];
    float shared = dot(x, dy, n) / float(n) * factor * factor;
    for (i = 0; i + kLanes <= n; i += kLanes) store(dx + i, (load(dy + i) - load(x + i) * shared) * factor);
    for (; i < n; ++i) dx[i] = (dy[i] - x[i] * shared) * factor;
}

template <typename T>
void norm(const T* x, const float* weight, float eps, int64_t rows, int64_t n, T* y) {
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        float* buffer = scratch().take(0, 2 * n);
        float* out = room(y + r * n, buffer + n);
        normalize(wide(x + r * n, n, buffer), weight, eps, n, out);
        put(out, n, y + r * n);
    }
}

// Y is what the norm gives, X what it takes: of a residual stream in fp32 it gives bf16.
template <typename X, typename Y>
void norm_backward(const X* x, const float* weight, float eps, int64_t rows, int64_t n, const Y* dy, X* dx) {
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        float *buffer = scratch().take(0, 2 * n), *out = buffer + n;
        const float* gradient = wide(dy + r * n, n, out);
        if (gradient != out) std::memcpy(out, gradient, n * sizeof(float));
        normalize_backward(wide(x + r * n, n, buffer), weight, eps, n, out, out);
        put(out, n, dx + r * n);
    }
}

// out = x cos + rotate_half(x) sin, where rotating turns (a, b) into (-b, a); the other way round for the gradient.
inline void turn(const float* x, const float* cos, const float* sin, int64_t dim, bool back, float* out) {
    int64_t half = dim / 2, i = 0;
    const float *b = x + half, *cos_b = cos + half, *sin_b = sin + half;
    for (; i + kLanes <= half; i += kLanes) {
        Vec xa = load(x + i), xb = load(b + i), sa = load(sin + i), sb = load(sin_b + i);
        store(out + i, xa * load(cos + i) + (back ? xb * sb : -(xb * sa)));
        store(out + half + i, xb * load(cos_b + i) + (back ? -(xa * sa) : xa * sb));
    }
    for (; i < half; ++i) {
        float xa = x[i], xb = b[i], sa = sin[i], sb = sin_b[i];
        out[i] = xa * cos[i] + (back ? xb * sb : -(xb * sa));
        out[half + i] = xb * cos_b[i] + (back ? -(xa * sa) : xa * sb);
    }
}

// Heads of each row, normalized if there is a weight, with their halves rotated.
template <typename T>
void rotate(const T* x, const float* weight, float eps, const float* cos, const float* sin, int64_t rows, int64_t heads, int64_t dim, T* y) {
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        float *normed = scratch().take(0, 2 * dim), *out = normed + dim;
        const float *c = cos + r * dim, *s = sin + r * dim;
        for (int64_t at = r * heads * dim; at < (r + 1) * heads * dim; at += dim) {
            const float* in = wide(x + at, dim, normed);
            if (weight) {
                normalize(in, weight, eps, dim, normed);
                in = normed;
            }
            turn(in, c, s, dim, false, out);
            put(out, dim, y + at);
        }
    }
}

template <typename T>
void rotate_backward(const T* x, const float* weight, float eps, const float* cos, const float* sin, int64_t rows, int64_t heads, int64_t dim, const T* dy, T* dx) {
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        float *buffer = scratch().take(0, 3 * dim), *out = buffer + 2 * dim;
        const float *c = cos + r * dim, *s = sin + r * dim;
        for (int64_t at = r * heads * dim; at < (r + 1) * heads * dim; at += dim) {
            turn(wide(dy + at, dim, buffer), c, s, dim, true, out);
            if (weight) normalize_backward(wide(x + at, dim, buffer + dim), weight, eps, dim, out, out);
            put(out, dim, dx + at);
        }
    }
}

constexpr int64_t kChunk = 1024;

inline Vec sigmoid(Vec x) { return 1.0f / (1.0f + exponential(-x)); }

// y = silu(gate) · up
template <typename T>
void gate(const T* gate, const T* up, int64_t size, T* y) {
#pragma omp parallel for schedule(static)
    for (int64_t start = 0; start < size; start += kChunk) {
        int64_t end = std::min(start + kChunk, size), i = start;
        auto step = [](Vec g, Vec u) { return g / (1.0f + exponential(-g)) * u; };
        for (; i + kLanes <= end; i += kLanes) store(y + i, step(load(gate + i), load(up + i)));
        if (i < end) store_part(y + i, end - i, step(load_part(gate + i, end - i), load_part(up + i, end - i)));
    }
}

template <typename T>
void gate_backward(const T* gate, const T* up, int64_t size, const T* dy, T* dgate, T* dup) {
#pragma omp parallel for schedule(static)
    for (int64_t start = 0; start < size; start += kChunk) {
        int64_t end = std::min(start + kChunk, size), i = start;
        // dup in the first, dgate in the second place
        auto step = [](Vec g, Vec u, Vec d) {
            Vec s = sigmoid(g);
            return std::pair<Vec, Vec>{d * g * s, d * u * s * (1.0f + g * (1.0f - s))};
        };
        for (; i + kLanes <= end; i += kLanes) {
            auto [du, dg] = step(load(gate + i), load(up + i), load(dy + i));
            store(dup + i, du);
            store(dgate + i, dg);
        }
        if (i == end) continue;
        int64_t n = end - i;
        auto [du, dg] = step(load_part(gate + i, n), load_part(up + i, n), load_part(dy + i, n));
        store_part(dup + i, n, du);
        store_part(dgate + i, n, dg);
    }
}

// Logarithm of the sum of the exponentials of each row: in double, since a logit less this may be close to zero.
template <typename T>
void log_sum_exp(const T* logits, int64_t rows, int64_t n, double* sums) {
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        float* buffer = scratch().take(0, n);
        const float* row = wide(logits + r * n, n, buffer);
        float most = largest(row, n), powers[kChunk];
        double total = 0;
        for (int64_t start = 0; start < n; start += kChunk) {
            int64_t count = std::min(kChunk, n - start);
            exponentials(row + start, count, 1.0f, most, powers);
            total += sum(powers, count);
        }
        sums[r] = most + std::log(total);
    }
}

// Gradient in place of the logits, given that of the log-probabilities of targets [first[r], first[r + 1]) of each row.
template <typename T>
void softmax_backward(T* logits, int64_t rows, int64_t n, const int64_t* first, const int64_t* tokens, const float* dlogprobs) {
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        float* buffer = scratch().take(0, n);
        const float* row = wide(logits + r * n, n, buffer);
        float* out = room(logits + r * n, buffer);
        exponentials(row, n, 1.0f, largest(row, n), out);
        float factor = -sum(dlogprobs + first[r], first[r + 1] - first[r]) / sum(out, n);
        for (int64_t i = 0; i < n; ++i) out[i] *= factor;
        for (int64_t t = first[r]; t < first[r + 1]; ++t) out[tokens[t]] += dlogprobs[t];
        put(out, n, logits + r * n);
    }
}

}  // namespace

#define EXPORT(T, SUFFIX)                                                                                                             \
    extern "C" void norm_##SUFFIX(const T* x, const float* weight, float eps, int64_t rows, int64_t n, T* y) {                        \
        norm(x, weight, eps, rows, n, y);                                                                                             \
    }                                                                                                                                 \
    extern "C" void norm_backward_##SUFFIX(const T* x, const float* weight, float eps, int64_t rows, int64_t n, const T* dy, T* dx) { \
        norm_backward(x, weight, eps, rows, n, dy, dx);                                                                               \
    }                                                                                                                                 \
    extern "C" void rotate_##SUFFIX(const T* x, const float* weight, float eps, const float* cos, const float* sin, int64_t rows,     \
                                    int64_t heads, int64_t dim, T* y) {                                                               \
        rotate(x, weight, eps, cos, sin, rows, heads, dim, y);                                                                        \
    }                                                                                                                                 \
    extern "C" void rotate_backward_##SUFFIX(const T* x, const float* weight, float eps, const float* cos, const float* sin,          \
                                             int64_t rows, int64_t heads, int64_t dim, const T* dy, T* dx) {                          \
        rotate_backward(x, weight, eps, cos, sin, rows, heads, dim, dy, dx);                                                          \
    }                                                                                                                                 \
    extern "C" void gate_##SUFFIX(const T* g, const T* up, int64_t size, T* y) { gate(g, up, size, y); }                              \
    extern "C" void gate_backward_##SUFFIX(const T* g, const T* up, int64_t size, const T* dy, T* dgate, T* dup) {                    \
        gate_backward(g, up, size, dy, dgate, dup);                                                                                   \
    }                                                                                                                                 \
    extern "C" void log_sum_exp_##SUFFIX(const T* logits, int64_t rows, int64_t n, double* sums) {                                    \
        log_sum_exp(logits, rows, n, sums);                                                                                           \
    }                                                                                                                                 \
    extern "C" void softmax_backward_##SUFFIX(T* logits, int64_t rows, int64_t n, const int64_t* first, const int64_t* tokens,        \
                                              const float* dlogprobs) {                                                               \
        softmax_backward(logits, rows, n, first, tokens, dlogprobs);                                                                  \
    }

EXPORT(float, fp32)
EXPORT(bf16, bf16)

extern "C" void residual_norm_backward_bf16(const float* x, const float* weight, float eps, int64_t rows, int64_t n, const bf16* dy, float* dx) {
    norm_backward(x, weight, eps, rows, n, dy, dx);
}

// Whether products of bf16 numbers are added in pairs by one instruction, as oneDNN does then.
extern "C" bool has_bf16_dots() {
#ifdef __AVX512BF16__
    return true;
#else
    return false;
#endif
}
