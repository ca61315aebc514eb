// Adapters of many short segments in one call: y += scaling · B A x, and its gradients, one task per segment.
//
// Legend: N packed positions, I features in, O features out, R rank.

#include "lanes.h"
#include "lora.h"

namespace {

// target (m, n) += a (m, k) · b (k, n); in place where rows are whole vectors of fp32, else by way of `buffer`.
template <typename T>
void add_product(int64_t m, int64_t n, int64_t k, Matrix a, const float* b, T* target, std::vector<float>& buffer) {
    int64_t width = padded(n);
    if (sizeof(T) == 4 && width == n) {
        product(m, n, k, a, b, width, reinterpret_cast<float*>(target), n, true);
        return;
    }
    if (int64_t(buffer.size()) < (m + 2) * width) buffer.resize((m + 2) * width);
    float *sums = buffer.data() + 2 * width, *row = buffer.data();
    product(m, n, k, a, b, width, sums, width, false);
    for (int64_t r = 0; r < m; ++r) {
        const float* old = wide(target + r * n, n, row);
        float* out = room(target + r * n, row + width);
        for (int64_t i = 0; i < n; ++i) out[i] = old[i] + sums[r * width + i];
        put(out, n, target + r * n);
    }
}

const float* scaled(const float* from, int64_t n, float scale, float* to) {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] * scale;
    return to;
}

// `low` (N, low_row) receives A x in fp32.
template <typename T>
void forward(const LoraSegment& s, const T* x, int64_t in, T* y, int64_t out, float* low, int64_t low_row) {
    int64_t rows = s.stop - s.start;
    Scratch& memory = scratch();
    const float* inputs = rows_of(x + s.start * in, in, rows, in, memory.take(0, rows * padded(in)));
    const float* a = columns_of(static_cast<const T*>(s.a), in, s.rank, in, memory.take(1, in * padded(s.rank)));
    const float* b = columns_of(static_cast<const T*>(s.b), s.rank, out, s.rank, memory.take(2, s.rank * padded(out)));
    float* lows = low + s.start * low_row;
    product(rows, s.rank, in, {inputs, padded(in), 1}, a, padded(s.rank), lows, low_row, false);
    const float* steps = scaled(lows, rows * low_row, float(s.scaling), memory.take(3, rows * low_row));
    add_product(rows, out, s.rank, {steps, low_row, 1}, b, y + s.start * out, memory.part(4));
}

template <typename T>
void backward(const LoraSegment& s, const T* x, int64_t in, const T* dy, int64_t out, const float* low, int64_t low_row, T* dx) {
    int64_t rows = s.stop - s.start, width = padded(s.rank);
    float scaling = float(s.scaling);
    Scratch& memory = scratch();
    const float* douts = rows_of(dy + s.start * out, out, rows, out, memory.take(0, rows * padded(out)));
    const float* b = rows_of(static_cast<const T*>(s.b), s.rank, out, s.rank, memory.take(1, out * width));
    float* dlows = memory.take(2, rows * width);
    product(rows, s.rank, out, {douts, padded(out), 1}, b, width, dlows, width, false);
    scaled(dlows, rows * width, scaling, dlows);
    if (dx) {
        const float* a = rows_of(static_cast<const T*>(s.a), in, s.rank, in, memory.take(5, s.rank * padded(in)));
        add_product(rows, in, s.rank, {dlows, width, 1}, a, dx + s.start * in, memory.part(4));
    }
    if (!s.da) return;
    const float* inputs = rows_of(x + s.start * in, in, rows, in, memory.take(6, rows * padded(in)));
    add_product(s.rank, in, rows, {dlows, 1, width}, inputs, s.da, memory.part(4));
    const float* lows = rows_of(low + s.start * low_row, low_row, rows, s.rank, memory.take(7, rows * width));
    lows = scaled(lows, rows * width, scaling, memory.take(7, rows * width));
    add_product(out, s.rank, rows, {douts, 1, padded(out)}, lows, s.db, memory.part(4));
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
