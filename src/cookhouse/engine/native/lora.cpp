// Adapters of many short segments in one call: y += scaling · B A x, and its gradients, one task per segment.
//
// Legend: N packed positions, I features in, O features out, R rank.

#include "lanes.h"

extern "C" {

struct LoraSegment {
    int64_t start, stop, rank;
    const void *a, *b;  // (R, I), (O, R)
    float *da, *db;     // added to; null: not wanted
    double scaling;
};
}

namespace {

template <typename T>
void add_scaled(const float* from, int64_t n, float scale, T* p, float* buffer) {
    const float* old = wide(p, n, buffer);
    float* sum = room(p, buffer);
    for (int64_t i = 0; i < n; ++i) sum[i] = old[i] + scale * from[i];
    put(sum, n, p);
}

// `low` (N, low_row) receives A x in fp32.
template <typename T>
void forward(const LoraSegment& s, const T* x, int64_t in, T* y, int64_t out, float* low, int64_t low_row) {
    int64_t rows = s.stop - s.start;
    Scratch& memory = scratch();
    const float* inputs = rows_of(x + s.start * in, in, rows, in, memory.take(0, rows * padded(in)));
    const float* a = columns_of(static_cast<const T*>(s.a), in, s.rank, in, memory.take(1, in * padded(s.rank)));
    const float* b = columns_of(static_cast<const T*>(s.b), s.rank, out, s.rank, memory.take(2, s.rank * padded(out)));
    float *lows = low + s.start * low_row, *added = memory.take(3, rows * padded(out)), *buffer = memory.take(4, out);
    product(rows, s.rank, in, {inputs, padded(in), 1}, a, padded(s.rank), lows, low_row, false);
    product(rows, out, s.rank, {lows, low_row, 1}, b, padded(out), added, padded(out), false);
    for (int64_t r = 0; r < rows; ++r)
        add_scaled(added + r * padded(out), out, float(s.scaling), y + (s.start + r) * out, buffer);
}

template <typename T>
void backward(const LoraSegment& s, const T* x, int64_t in, const T* dy, int64_t out, const float* low, int64_t low_row, T* dx) {
    int64_t rows = s.stop - s.start, wide_rank = padded(s.rank), wide_in = padded(in);
    float scaling = float(s.scaling);
    Scratch& memory = scratch();
    const float* douts = rows_of(dy + s.start * out, out, rows, out, memory.take(0, rows * padded(out)));
    const float* b = rows_of(static_cast<const T*>(s.b), s.rank, out, s.rank, memory.take(1, out * wide_rank));
    float *dlows = memory.take(2, rows * wide_rank), *result = memory.take(3, std::max(rows, s.rank) * wide_in), *buffer = memory.take(4, in);
    product(rows, s.rank, out, {douts, padded(out), 1}, b, wide_rank, dlows, wide_rank, false);
    for (int64_t i = 0; i < rows * wide_rank; ++i) dlows[i] *= scaling;
    if (dx) {
        const float* a = rows_of(static_cast<const T*>(s.a), in, s.rank, in, memory.take(5, s.rank * wide_in));
        product(rows, in, s.rank, {dlows, wide_rank, 1}, a, wide_in, result, wide_in, false);
        for (int64_t r = 0; r < rows; ++r) add_scaled(result + r * wide_in, in, 1.0f, dx + (s.start + r) * in, buffer);
    }
    if (!s.da) return;
    const float* inputs = rows_of(x + s.start * in, in, rows, in, memory.take(6, rows * wide_in));
    product(s.rank, in, rows, {dlows, 1, wide_rank}, inputs, wide_in, result, wide_in, false);
    for (int64_t r = 0; r < s.rank; ++r) add_scaled(result + r * wide_in, in, 1.0f, s.da + r * in, buffer);
    float* db = memory.take(7, out * wide_rank);
    product(out, s.rank, rows, {douts, 1, padded(out)}, low + s.start * low_row, low_row, db, wide_rank, false);
    for (int64_t o = 0; o < out; ++o) add_scaled(db + o * wide_rank, s.rank, scaling, s.db + o * s.rank, buffer);
}

}  // namespace

#define EXPORT(T, SUFFIX)                                                                                                           \
    extern "C" void lora_##SUFFIX(const LoraSegment* segments, int64_t count, const T* x, int64_t in, T* y, int64_t out, float* low, \
                                  int64_t low_row) {                                                                                \
        _Pragma("omp parallel for schedule(dynamic)") for (int64_t i = 0; i < count; ++i)                                           \
            forward(segments[i], x, in, y, out, low, low_row);                                                                      \
    }                                                                                                                               \
    extern "C" void lora_backward_##SUFFIX(const LoraSegment* segments, int64_t count, const T* x, int64_t in, const T* dy,          \
                                           int64_t out, const float* low, int64_t low_row, T* dx) {                                 \
        _Pragma("omp parallel for schedule(dynamic)") for (int64_t i = 0; i < count; ++i)                                           \
            backward(segments[i], x, in, dy, out, low, low_row, dx);                                                                \
    }

EXPORT(float, fp32)
EXPORT(bf16, bf16)
