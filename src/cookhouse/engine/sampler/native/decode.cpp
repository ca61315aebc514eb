// One decoding step of a dense Llama-like model: every row adds one token to its sequence and gets logits for the next.
//
// Built for this machine at first use (see build.py); the structures below are mirrored in kernel.py. Activations and
// sums are fp32, weights and cache fp32 or bf16. A row's result never depends on the other rows, not even in rounding:
// each output is one dot product, summed in an order that only its length decides.
//
// Legend: B rows, I features in, O features out, R rank, H query heads, K key-value heads, D features per head,
// V vocabulary.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <omp.h>

extern "C" {

struct Linear {
    const void* weight;  // (O, I)
    const float* bias;   // (O) or null
    int64_t out, in;
};

struct Layer {
    const float* input_norm;      // (hidden)
    const float* attention_norm;  // (hidden), before the MLP
    const float* q_norm;          // (D) or null
    const float* k_norm;          // (D) or null
    Linear q, k, v, o, gate, up, down;
    void* keys;    // (slots, K, D)
    void* values;  // (slots, K, D)
    int64_t window;  // latest keys that a query sees; 0: all
};

struct Model {
    int64_t num_layers, hidden, num_heads, num_kv_heads, head_dim, block_size;
    float norm_eps, scaling;
    const Layer* layers;
    const float* final_norm;
    Linear head;
    const void* embedding;  // (V, hidden)
};

// Adapter of one linear layer: y += scaling · B A x. A null `a` is no adapter.
struct Lora {
    const void* a;  // (R, I)
    const void* b;  // (O, R)
    int64_t rank;
    float scaling;
};

struct Batch {
    int64_t num_rows;
    const int64_t* tokens;     // (B)
    const int64_t* positions;  // (B)
    const float* cos;          // (B, D)
    const float* sin;          // (B, D)
    const int64_t* blocks;     // block tables of all rows, end to end
    const int64_t* first_block;  // (B): where a row's table starts
    int64_t num_segments;
    const int64_t* segment_starts;  // (segments + 1): rows of one adapter are neighbors
    const Lora* loras;              // (segments, layers · 7 + 1): q k v o gate up down of each layer, then the head
    float* logits;                  // (B, V), written
};
}

namespace {

constexpr int kLanes = 16;
constexpr int kRowsPerThread = 4;
constexpr int64_t kProductsPerThread = 4000000;
typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef uint32_t UVec __attribute__((vector_size(4 * kLanes)));
typedef uint16_t HVec __attribute__((vector_size(2 * kLanes)));
typedef float Vec8 __attribute__((vector_size(32)));
typedef float Vec4 __attribute__((vector_size(16)));

struct bf16 {
    uint16_t bits;
};

inline float load1(const float* p) { return *p; }
inline float load1(const bf16* p) {
    uint32_t wide = uint32_t(p->bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
}
inline Vec load(const float* p) {
    Vec v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline Vec load(const bf16* p) {
    HVec half;
    std::memcpy(&half, p, sizeof half);
    UVec wide = __builtin_convertvector(half, UVec) << 16;
    return (Vec)wide;
}
inline void store1(float* p, float value) { *p = value; }
inline void store1(bf16* p, float value) {  // round to nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    p->bits = uint16_t((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
// Lanes are always added in the same pairs: halves, quarters, neighbors, so that `sum` and `sums` agree to the bit.
inline float sum(Vec v) {
    Vec8 a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    Vec4 b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
    return (b[0] + b[1]) + (b[2] + b[3]);
}
// The sums of four vectors at once, in a third of the instructions.
inline void sums(const Vec v[4], float out[4]) {
    Vec ab = __builtin_shufflevector(v[0], v[1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
             __builtin_shufflevector(v[0], v[1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    Vec cd = __builtin_shufflevector(v[2], v[3], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
             __builtin_shufflevector(v[2], v[3], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    Vec abcd = __builtin_shufflevector(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
               __builtin_shufflevector(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    abcd += __builtin_shufflevector(abcd, abcd, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    abcd += __builtin_shufflevector(abcd, abcd, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    for (int i = 0; i < 4; ++i) out[i] = abcd[4 * i];
}

// Dot products, of n features each, of MR rows of x with NR rows of w.
template <int MR, int NR, typename W>
inline void tile(const float* x, int64_t x_stride, const W* w, int64_t w_stride, int64_t n, float out[MR][NR]) {
    Vec acc[MR][NR] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        Vec wv[NR];
        for (int c = 0; c < NR; ++c) wv[c] = load(w + c * w_stride + i);
        for (int r = 0; r < MR; ++r) {
            Vec xv = load(x + r * x_stride + i);
            for (int c = 0; c < NR; ++c) acc[r][c] += xv * wv[c];
        }
    }
    for (int r = 0; r < MR; ++r) {
        if constexpr (NR == 4) sums(acc[r], out[r]);
        else for (int c = 0; c < NR; ++c) out[r][c] = sum(acc[r][c]);
        for (int64_t j = i; j < n; ++j)
            for (int c = 0; c < NR; ++c) out[r][c] += x[r * x_stride + j] * load1(w + c * w_stride + j);
    }
}

template <int MR, int NR, typename W>
inline void panel(const float* x, int64_t in, const W* w, float* y, int64_t out, int64_t column, const float* bias, float scale, bool add) {
    float t[MR][NR];
    tile<MR, NR>(x, in, w + column * in, in, in, t);
    for (int r = 0; r < MR; ++r)
        for (int c = 0; c < NR; ++c) {
            float value = scale * t[r][c] + (bias ? bias[column + c] : 0.0f);
            float* target = y + r * out + column + c;
            *target = add ? *target + value : value;
        }
}

// y (rows, O) = or += scale · x (rows, I) · w (O, I)ᵀ + bias. Called inside a parallel region; ends in a barrier.
template <typename W>
void matmul(const float* x, int64_t rows, int64_t in, const W* w, int64_t out, float* y, const float* bias, float scale, bool add) {
    constexpr int NR = 4, kColumns = 16;
#pragma omp for schedule(static)
    for (int64_t start = 0; start < out; start += kColumns) {
        int64_t stop = std::min(start + kColumns, out);
        int64_t r = 0;
        for (; r + 4 <= rows; r += 4) {
            int64_t c = start;
            for (; c + NR <= stop; c += NR) panel<4, NR>(x + r * in, in, w, y + r * out, out, c, bias, scale, add);
            for (; c < stop; ++c) panel<4, 1>(x + r * in, in, w, y + r * out, out, c, bias, scale, add);
        }
        for (; r < rows; ++r) {
            int64_t c = start;
            for (; c + NR <= stop; c += NR) panel<1, NR>(x + r * in, in, w, y + r * out, out, c, bias, scale, add);
            for (; c < stop; ++c) panel<1, 1>(x + r * in, in, w, y + r * out, out, c, bias, scale, add);
        }
    }
}

inline void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* y) {
    float squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
    float factor = 1.0f / std::sqrt(squares / float(n) + eps);
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor * weight[i];
}

// Normalize if asked, then rotate halves: out = x cos + rotate_half(x) sin.
inline void rotate(float* x, const float* norm, float eps, const float* cos, const float* sin, int64_t dim) {
    if (norm) rms_norm(x, norm, eps, dim, x);
    int64_t half = dim / 2;
    for (int64_t i = 0; i < half; ++i) {
        float a = x[i], b = x[i + half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = b * cos[i + half] + a * sin[i + half];
    }
}

template <typename W>
class Step {
   public:
    Step(const Model& model, const Batch& batch) : m_(model), b_(batch) {
        int64_t rows = batch.num_rows, widest = 0, rank = 1;
        for (int64_t l = 0; l < model.num_layers; ++l) widest = std::max(widest, model.layers[l].gate.out);
        for (int64_t i = 0; i < batch.num_segments * sites(); ++i) rank = std::max(rank, batch.loras[i].rank);
        hidden_.resize(rows * m_.hidden);
        normed_.resize(rows * m_.hidden);
        q_.resize(rows * m_.num_heads * m_.head_dim);
        k_.resize(rows * m_.num_kv_heads * m_.head_dim);
        v_.resize(k_.size());
        mixed_.resize(q_.size());
        gate_.resize(rows * widest);
        up_.resize(rows * widest);
        low_.resize(rows * rank);
    }

    void run(int num_threads) {
        int64_t rows = b_.num_rows, hidden = m_.hidden;
#pragma omp parallel num_threads(num_threads)
        {
#pragma omp for schedule(static)
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t i = 0; i < hidden; ++i)
                    hidden_[r * hidden + i] = load1(static_cast<const W*>(m_.embedding) + b_.tokens[r] * hidden + i);
            for (int64_t l = 0; l < m_.num_layers; ++l) layer(l);
            normalize(m_.final_norm);
            linear(m_.head, m_.num_layers * 7, normed_.data(), b_.logits, false);
        }
    }

   private:
    int64_t sites() const { return m_.num_layers * 7 + 1; }

    void layer(int64_t l) {
        const Layer& layer = m_.layers[l];
        normalize(layer.input_norm);
        linear(layer.q, l * 7 + 0, normed_.data(), q_.data(), false);
        linear(layer.k, l * 7 + 1, normed_.data(), k_.data(), false);
        linear(layer.v, l * 7 + 2, normed_.data(), v_.data(), false);
        attend(layer);
        linear(layer.o, l * 7 + 3, mixed_.data(), hidden_.data(), true);
        normalize(layer.attention_norm);
        linear(layer.gate, l * 7 + 4, normed_.data(), gate_.data(), false);
        linear(layer.up, l * 7 + 5, normed_.data(), up_.data(), false);
        int64_t size = b_.num_rows * layer.gate.out;
        float *gate = gate_.data(), *up = up_.data();
#pragma omp for schedule(static)
        for (int64_t start = 0; start < size; start += 1024)
            for (int64_t i = start; i < std::min(start + 1024, size); ++i) gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
        linear(layer.down, l * 7 + 6, gate, hidden_.data(), true);
    }

    void normalize(const float* weight) {
#pragma omp for schedule(static)
        for (int64_t r = 0; r < b_.num_rows; ++r)
            rms_norm(&hidden_[r * m_.hidden], weight, m_.norm_eps, m_.hidden, &normed_[r * m_.hidden]);
    }

    void linear(const Linear& layer, int64_t site, const float* x, float* y, bool add) {
        matmul(x, b_.num_rows, layer.in, static_cast<const W*>(layer.weight), layer.out, y, layer.bias, 1.0f, add);
        for (int64_t s = 0; s < b_.num_segments; ++s) {
            const Lora& lora = b_.loras[s * sites() + site];
            if (!lora.a) continue;
            int64_t start = b_.segment_starts[s], rows = b_.segment_starts[s + 1] - start;
            matmul(x + start * layer.in, rows, layer.in, static_cast<const W*>(lora.a), lora.rank, low_.data(), nullptr, 1.0f, false);
            matmul(low_.data(), rows, lora.rank, static_cast<const W*>(lora.b), layer.out, y + start * layer.out, nullptr, lora.scaling, true);
        }
    }

    void attend(const Layer& layer) {
        int64_t dim = m_.head_dim, kv_heads = m_.num_kv_heads, per_kv = m_.num_heads / kv_heads;
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < b_.num_rows * kv_heads; ++task) {
            int64_t r = task / kv_heads, h = task % kv_heads;
            const float *cos = b_.cos + r * dim, *sin = b_.sin + r * dim;
            float* k = &k_[(r * kv_heads + h) * dim];
            float* v = &v_[(r * kv_heads + h) * dim];
            rotate(k, layer.k_norm, m_.norm_eps, cos, sin, dim);
            W* new_key = static_cast<W*>(layer.keys) + (slot(r, b_.positions[r]) * kv_heads + h) * dim;
            W* new_value = static_cast<W*>(layer.values) + (slot(r, b_.positions[r]) * kv_heads + h) * dim;
            for (int64_t i = 0; i < dim; ++i) store1(new_key + i, k[i]), store1(new_value + i, v[i]);
            for (int64_t g = 0; g < per_kv; ++g) {
                int64_t head = (r * m_.num_heads + h * per_kv + g) * dim;
                rotate(&q_[head], layer.q_norm, m_.norm_eps, cos, sin, dim);
                mix(layer, r, h, &q_[head], &mixed_[head]);
            }
        }
    }

    // Softmax of one query over the keys it sees, applied to their values.
    void mix(const Layer& layer, int64_t r, int64_t h, const float* q, float* out) {
        int64_t dim = m_.head_dim, stride = m_.num_kv_heads * dim, stop = b_.positions[r] + 1;
        int64_t start = layer.window ? std::max<int64_t>(0, stop - layer.window) : 0;
        thread_local std::vector<float> scores;
        scores.resize(stop - start);
        each_block(start, stop, [&](int64_t first, int64_t last) {
            const W* keys = static_cast<const W*>(layer.keys) + slot(r, first) * stride + h * dim;
            float* block = &scores[first - start];
            int64_t j = 0, count = last - first;
            for (; j + 4 <= count; j += 4) tile<1, 4>(q, dim, keys + j * stride, stride, dim, (float(*)[4])(block + j));
            for (; j < count; ++j) tile<1, 1>(q, dim, keys + j * stride, stride, dim, (float(*)[1])(block + j));
        });
        float largest = *std::max_element(scores.begin(), scores.end()), total = 0;
        for (float& score : scores) total += score = std::exp((score - largest) * m_.scaling);
        int64_t i = 0;
        for (; i + kLanes <= dim; i += kLanes) {
            Vec mixed = {};
            each_block(start, stop, [&](int64_t first, int64_t last) {
                const W* value = static_cast<const W*>(layer.values) + slot(r, first) * stride + h * dim + i;
                for (int64_t j = first; j < last; ++j, value += stride) mixed += scores[j - start] * load(value);
            });
            mixed /= total;
            std::memcpy(out + i, &mixed, sizeof mixed);
        }
        for (; i < dim; ++i) {
            float mixed = 0;
            for (int64_t j = start; j < stop; ++j)
                mixed += scores[j - start] * load1(static_cast<const W*>(layer.values) + slot(r, j) * stride + h * dim + i);
            out[i] = mixed / total;
        }
    }

    // Calls f(first, last) for the runs of positions in [start, stop) that lie side by side in the cache.
    template <typename F>
    void each_block(int64_t start, int64_t stop, F f) {
        for (int64_t first = start, last; first < stop; first = last) {
            last = std::min(stop, (first / m_.block_size + 1) * m_.block_size);
            f(first, last);
        }
    }

    int64_t slot(int64_t r, int64_t position) const {
        return b_.blocks[b_.first_block[r] + position / m_.block_size] * m_.block_size + position % m_.block_size;
    }

    const Model& m_;
    const Batch& b_;
    std::vector<float> hidden_, normed_, q_, k_, v_, mixed_, gate_, up_, low_;
};

// The rows [start, stop) of a batch, with the segments that reach into them.
struct Part {
    Batch batch;
    std::vector<int64_t> starts;
    std::vector<Lora> loras;

    Part(const Batch& whole, int64_t sites, int64_t vocabulary, int64_t head_dim, int64_t start, int64_t stop) : batch(whole) {
        for (int64_t s = 0; s < whole.num_segments; ++s) {
            int64_t first = std::max(whole.segment_starts[s], start), last = std::min(whole.segment_starts[s + 1], stop);
            if (first >= last) continue;
            starts.push_back(first - start);
            loras.insert(loras.end(), whole.loras + s * sites, whole.loras + (s + 1) * sites);
        }
        batch.num_segments = int64_t(starts.size());
        starts.push_back(stop - start);
        batch.num_rows = stop - start;
        batch.tokens += start;
        batch.positions += start;
        batch.cos += start * head_dim;
        batch.sin += start * head_dim;
        batch.first_block += start;
        batch.segment_starts = starts.data();
        batch.loras = loras.data();
        batch.logits += start * vocabulary;
    }
};

// Few rows share every product among the threads. Many are split among them, so that none waits for another.
template <typename W>
void decode(const Model& model, const Batch& batch) {
    // A thread more must save more than waiting for it costs.
    int64_t products = batch.num_rows * model.head.out * model.head.in;
    for (int64_t l = 0; l < model.num_layers; ++l)
        for (const Linear* p = &model.layers[l].q; p <= &model.layers[l].down; ++p) products += batch.num_rows * p->out * p->in;
    int threads = int(std::min<int64_t>(omp_get_max_threads(), 1 + products / kProductsPerThread));
    if (threads == 1 || batch.num_rows < kRowsPerThread * threads) {
        Step<W>(model, batch).run(threads);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; ++t) {
        int64_t start = batch.num_rows * t / threads, stop = batch.num_rows * (t + 1) / threads;
        Part part(batch, model.num_layers * 7 + 1, model.head.out, model.head_dim, start, stop);
        Step<W>(model, part.batch).run(1);
    }
}

}  // namespace

extern "C" void decode_fp32(const Model* model, const Batch* batch) { decode<float>(*model, *batch); }
extern "C" void decode_bf16(const Model* model, const Batch* batch) { decode<bf16>(*model, *batch); }
