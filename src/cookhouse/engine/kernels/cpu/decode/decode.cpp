// One pass of a dense Llama-like model over rows: each is one position of a sequence whose earlier positions are in the
// cache, or are rows before it. A sequence that decodes has one row, a prompt as many as are read of it.
//
// Built for this machine at first use (see build.py). Weights, cache and what lies between the products of a layer are fp32
// or bf16, the residual stream and all sums fp32. A row's result never depends on the rows of other sequences, nor on where
// its prompt was cut, not even in rounding; in bf16 it is the trainer's, to the bit.
//
// Legend: N rows, B rows whose logits are wanted, I features in, O features out, R rank, H query heads, K key-value
// heads, D features per head, V vocabulary.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <omp.h>

#include "attention.h"
#include "model.h"
#include "rows.h"
#include "training.h"

namespace {

constexpr int64_t kRowsPerThread = 4;
constexpr int64_t kCachedBytes = 1 << 25;  // weights that stay in the cache of all cores
constexpr int64_t kProductsPerThread = 4000000;
constexpr int64_t kUnevenness = 6;    // a thread may have this part of its share more than its share
constexpr int64_t kRowsAtOnce = 128;  // their activations stay in a core's cache

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

inline void norm(const float* x, const float* weight, float eps, int64_t n, float* y, float*) { rms_norm(x, weight, eps, n, y); }
inline void norm(const float* x, const float* weight, float eps, int64_t n, bf16* y, float* room) { rounded_norm(x, weight, eps, n, y, room); }
inline void rotate(float* x, const float* norm, float eps, const float* cos, const float* sin, int64_t dim, float*) { rotate(x, norm, eps, cos, sin, dim); }
inline void rotate(bf16* x, const float* norm, float eps, const float* cos, const float* sin, int64_t dim, float* room) {
    rounded_rotation(x, norm, eps, cos, sin, dim, x, room);
}
inline void gate(float* gate, const float* up) {
    Vec x = load(gate);
    store(gate, x / (1.0f + exp(-x)) * load(up));
}
inline void gate(bf16* gate, const bf16* up) { rounded_gate(gate, up, kLanes, gate); }

template <typename W>
class Step {
   public:
    Step(const Model& model, const Batch& batch)
        : m_(model),
          b_(batch),
          rank_(largest_rank(model, batch)),
          hidden_(batch.num_rows * model.hidden),
          normed_(batch.num_rows * model.hidden),
          q_(batch.num_rows * model.num_heads * model.head_dim),
          k_(batch.num_rows * model.num_kv_heads * model.head_dim),
          v_(batch.num_rows * model.num_kv_heads * model.head_dim),
          mixed_(batch.num_rows * model.num_heads * model.head_dim),
          gate_(batch.num_rows * model.layers->gate.out),
          up_(batch.num_rows * model.layers->gate.out),
          low_(batch.num_rows * rank_),
          sums_(std::is_same_v<W, float> ? 0 : batch.num_rows * widest(model)),
          packed_((batch.num_rows + kLanes) * std::max(widest(model), rank_)) {
        cut_tiles();
        for (int64_t s = 0; s <= batch.num_segments; ++s)
            output_starts_.push_back(std::lower_bound(batch.outputs, batch.outputs + batch.num_outputs, batch.segment_starts[s]) - batch.outputs);
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
#pragma omp single
            {
                if (b_.hidden)
                    for (int64_t i = 0; i < rows * hidden; ++i) b_.hidden[i] = load1(&normed_[i]);
                for (int64_t i = 0; i < b_.num_outputs; ++i)  // never behind where it is read from
                    std::copy_n(&normed_[b_.outputs[i] * hidden], hidden, &normed_[i * hidden]);
            }
            project(m_.head, m_.num_layers * 7, normed_.data(), b_.num_outputs, output_starts_.data(), {nullptr, b_.logits, false});
        }
    }

   private:
    static int64_t largest_rank(const Model& model, const Batch& batch) {
        int64_t rank = 0;
        for (int64_t i = 0; i < batch.num_segments * (model.num_layers * 7 + 1); ++i) rank = std::max(rank, batch.loras[i].rank);
        return rank;
    }

    // Features of whatever goes into a product of a layer, or comes out of one.
    static int64_t widest(const Model& model) {
        return std::max({model.hidden, model.layers->gate.out, model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim});
    }

    int64_t sites() const { return m_.num_layers * 7 + 1; }

    void layer(int64_t l) {
        const Layer& layer = m_.layers[l];
        normalize(layer.input_norm);
        linear(layer.q, l * 7 + 0, normed_.data(), {q_.data(), nullptr, false});
        linear(layer.k, l * 7 + 1, normed_.data(), {k_.data(), nullptr, false});
        linear(layer.v, l * 7 + 2, normed_.data(), {v_.data(), nullptr, false});
        remember(layer);
        attend(layer);
        linear(layer.o, l * 7 + 3, mixed_.data(), {nullptr, hidden_.data(), true});
        normalize(layer.attention_norm);
        linear(layer.gate, l * 7 + 4, normed_.data(), {gate_.data(), nullptr, false});
        linear(layer.up, l * 7 + 5, normed_.data(), {up_.data(), nullptr, false});
        int64_t size = b_.num_rows * layer.gate.out;
        W *gates = gate_.data(), *up = up_.data();
#pragma omp for schedule(static)
        for (int64_t i = 0; i < size; i += kLanes) gate(gates + i, up + i);  // there is room behind the last
        linear(layer.down, l * 7 + 6, gates, {nullptr, hidden_.data(), true});
    }

    void normalize(const float* weight) {
        Buffer<float> room(m_.hidden);
#pragma omp for schedule(static)
        for (int64_t r = 0; r < b_.num_rows; ++r)
            norm(&hidden_[r * m_.hidden], weight, m_.norm_eps, m_.hidden, &normed_[r * m_.hidden], room.data());
    }

    // Where the result of a layer goes: to what is multiplied next, or to what is fp32, added there if asked.
    struct Output {
        W* next;
        float* wide;
        bool add;
    };

    void linear(const Linear& layer, int64_t site, const W* x, Output y) { project(layer, site, x, b_.num_rows, b_.segment_starts, y); }

    void project(const Linear& layer, int64_t site, const W* x, int64_t rows, const int64_t* starts, Output y) {
        if constexpr (std::is_same_v<W, float>) {
            float* target = y.wide ? y.wide : y.next;
            product(x, rows, layer.in, layer.weight, layer.is_packed, layer.out, {layer.bias, 1.0f, y.add, target, layer.out});
            for (int64_t s = 0; s < b_.num_segments; ++s) {
                const Lora& lora = b_.loras[s * sites() + site];
                int64_t start = starts[s], count = starts[s + 1] - start;
                if (!lora.a || !count) continue;
                product(x + start * layer.in, count, layer.in, lora.a, lora.is_packed, lora.rank, {nullptr, 1.0f, false, low_.data(), lora.rank});
                product(low_.data(), count, lora.rank, lora.b, lora.is_packed, layer.out, {nullptr, lora.scaling, true, target + start * layer.out, layer.out});
            }
        } else {
            std::vector<Adapter> adapters;
            for (int64_t s = 0; s < b_.num_segments; ++s) {
                const Lora& lora = b_.loras[s * sites() + site];
                adapters.push_back({starts[s], starts[s + 1], lora.rank, static_cast<const bf16*>(lora.a), static_cast<const bf16*>(lora.b), lora.scaling, bool(lora.is_packed)});
            }
            Factor base{static_cast<const bf16*>(layer.weight), layer.in, layer.out, bool(layer.is_packed), is_even(layer.in, layer.out)};
            // The head has more features than there is room for, but fp32 is where its sums go anyway.
            float* sums = y.wide && !y.add ? y.wide : sums_.data();
            Round target{nullptr, layer.bias, 1.0f, y.next, y.wide, y.add, layer.out};
            ::project(x, rows, base, adapters, target, {sums, low_.data(), packed_.data()}, [](const Adapter&, const bf16*) {});
        }
    }

    static void product(const float* x, int64_t rows, int64_t in, const void* weight, bool is_packed, int64_t out, Finish finish) {
        const float* w = static_cast<const float*>(weight);
        if (is_packed) packed_matmul(x, rows, in, w, out, finish);
        else matmul(x, rows, in, w, out, finish);
    }

    // Rotate queries and keys, and put keys and values into the cache before any row reads them.
    void remember(const Layer& layer) {
        int64_t dim = m_.head_dim, kv_heads = m_.num_kv_heads;
        Buffer<float> room(2 * dim);
#pragma omp for schedule(static)
        for (int64_t r = 0; r < b_.num_rows; ++r) {
            const float *cos = b_.cos + r * dim, *sin = b_.sin + r * dim;
            int64_t block = table(r)[b_.positions[r] / kBlockSize] * block_stride(), offset = b_.positions[r] % kBlockSize;
            W *keys = static_cast<W*>(layer.keys) + block + offset, *values = static_cast<W*>(layer.values) + block + offset * dim;
            for (int64_t h = 0; h < kv_heads; ++h) {
                W *k = &k_[(r * kv_heads + h) * dim], *v = &v_[(r * kv_heads + h) * dim];
                rotate(k, layer.k_norm, m_.norm_eps, cos, sin, dim, room.data());
                for (int64_t i = 0; i < dim; ++i) keys[(h * dim + i) * kBlockSize] = k[i];
                std::copy_n(v, dim, values + h * kBlockSize * dim);
            }
            for (int64_t h = 0; h < m_.num_heads; ++h) rotate(&q_[(r * m_.num_heads + h) * dim], layer.q_norm, m_.norm_eps, cos, sin, dim, room.data());
        }
    }

    // Neighbors among the rows of a sequence, with as many of the query heads of a key-value head as go together.
    struct Tile {
        int64_t row, num_rows;
    };

    int64_t per_kv() const { return m_.num_heads / m_.num_kv_heads; }

    void cut_tiles() {
        int64_t most = std::max<int64_t>(1, kMaxQueries / per_kv());
        for (int64_t r = 0; r < b_.num_rows; ++r) {
            bool is_next = r && b_.first_block[r] == b_.first_block[r - 1] && tiles_.back().num_rows < most;
            if (is_next) ++tiles_.back().num_rows;
            else tiles_.push_back({r, 1});
            longest_ = std::max(longest_, b_.positions[r] + 1);
        }
    }

    void attend(const Layer& layer) {
        Buffer<float> room(kMaxQueries * (2 * m_.head_dim + longest_ + 2 * kBlockSize));  // queries, outputs and scores of a tile
        int64_t kv_heads = m_.num_kv_heads, num_tasks = int64_t(tiles_.size()) * kv_heads;
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < num_tasks; ++task)
            for (int64_t first = 0; first < per_kv(); first += kMaxQueries)
                attend_tile(layer, tiles_[task / kv_heads], task % kv_heads, first, room.data());
    }

    // The query heads of key-value head h, up to kMaxQueries from `first` on, in the rows of a tile.
    void attend_tile(const Layer& layer, Tile tile, int64_t h, int64_t first, float* queries) {
        int64_t dim = m_.head_dim, heads = std::min<int64_t>(kMaxQueries, per_kv() - first), count = tile.num_rows * heads;
        int64_t stride = m_.num_heads * dim, start = tile.row * stride + (h * per_kv() + first) * dim;
        Context<W> context{static_cast<const W*>(layer.keys) + h * dim * kBlockSize, static_cast<const W*>(layer.values) + h * dim * kBlockSize, table(tile.row), block_stride(), dim, layer.window, m_.scaling};
        float *mixed = queries + kMaxQueries * dim, *scores = mixed + kMaxQueries * dim;
        int64_t positions[kMaxQueries];
        for (int64_t i = 0; i < kMaxQueries; ++i) positions[i] = b_.positions[tile.row + std::min(i, count - 1) / heads];
        float logs[kMaxQueries];
        for (int64_t r = 0; r < tile.num_rows; ++r) widen_row(&q_[start + r * stride], heads * dim, queries + r * heads * dim);
        std::fill(queries + count * dim, mixed, 0.0f);
        attend_any(count, context, queries, positions, scores, mixed, logs);
        for (int64_t r = 0; r < tile.num_rows; ++r) round_row(mixed + r * heads * dim, heads * dim, &mixed_[start + r * stride]);
    }

    const int64_t* table(int64_t r) const { return b_.blocks + b_.first_block[r]; }
    int64_t block_stride() const { return kBlockSize * m_.num_kv_heads * m_.head_dim; }

    const Model& m_;
    const Batch& b_;
    int64_t rank_;
    Buffer<float> hidden_;
    Buffer<W> normed_, q_, k_, v_, mixed_, gate_, up_, low_;
    Buffer<float> sums_;                  // of a layer with adapters, in bf16
    Buffer<bf16> packed_;                 // rows being multiplied, as the matrix unit takes them
    std::vector<Tile> tiles_;
    int64_t longest_ = 0;                 // positions that a row sees, at most
    std::vector<int64_t> output_starts_;  // which of the outputs are of which segment
};

// The rows [start, stop) of a batch, with the segments that reach into them.
struct Part {
    Batch batch;
    std::vector<int64_t> starts, outputs;
    std::vector<Lora> loras;

    Part(const Batch& whole, const Model& model, int64_t start, int64_t stop) : batch(whole) {
        int64_t sites = model.num_layers * 7 + 1;
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
        batch.cos += start * model.head_dim;
        batch.sin += start * model.head_dim;
        batch.first_block += start;
        batch.segment_starts = starts.data();
        batch.loras = loras.data();
        int64_t skipped = 0;
        for (int64_t i = 0; i < whole.num_outputs; ++i) {
            if (whole.outputs[i] < start) ++skipped;
            else if (whole.outputs[i] < stop) outputs.push_back(whole.outputs[i] - start);
        }
        batch.num_outputs = int64_t(outputs.size());
        batch.outputs = outputs.data();
        batch.logits += skipped * model.head.out;
        if (batch.hidden) batch.hidden += start * model.hidden;
    }
};

// The rows [start, stop), so many at a time that what is computed of them stays in cache.
template <typename W>
void run(const Model& model, const Batch& batch, int64_t start, int64_t stop, int threads) {
    int64_t rows = stop - start, parts = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
    for (int64_t p = 0; p < parts; ++p) {
        Part part(batch, model, start + rows * p / parts, start + rows * (p + 1) / parts);
        Step<W>(model, part.batch).run(threads);
    }
}

// Bounds of the rows that each thread computes alone, whole sequences; none if some would be left with much more than others.
std::vector<int64_t> shares(const Batch& batch, int threads) {
    int64_t rows = batch.num_rows;
    std::vector<int64_t> bounds{0};
    auto is_bound = [&](int64_t r) { return r <= 0 || r >= rows || batch.first_block[r] != batch.first_block[r - 1]; };
    for (int t = 1; t <= threads; ++t) {
        int64_t wanted = rows * t / threads, away = 0;
        while (!is_bound(wanted - away) && !is_bound(wanted + away)) ++away;
        bounds.push_back(std::max(bounds.back(), is_bound(wanted - away) ? wanted - away : wanted + away));
        int64_t most = rows / threads + rows / threads / kUnevenness;
        if (bounds[t] - bounds[t - 1] > std::max(most, rows / threads + 1)) return {};
    }
    return bounds;
}

// Few rows, or those of few sequences, share every product among the threads. Many are split among them, so that none
// waits for another. Each thread then reads all weights: where these come from memory, it takes more rows to be worth it.
template <typename W>
void run(const Model& model, const Batch& batch) {
    // A thread more must save more than waiting for it costs.
    int64_t weights = model.head.out * model.head.in;
    for (int64_t l = 0; l < model.num_layers; ++l)
        for (const Linear* p = &model.layers[l].q; p <= &model.layers[l].down; ++p) weights += p->out * p->in;
    int threads = int(std::min<int64_t>(omp_get_max_threads(), 1 + batch.num_rows * weights / kProductsPerThread));
    bool is_cached = weights * int64_t(sizeof(W)) <= kCachedBytes;
    std::vector<int64_t> bounds;
    if (threads > 1 && batch.num_rows >= (is_cached ? kRowsPerThread : kRowsAtOnce) * threads) bounds = shares(batch, threads);
    if (bounds.empty()) return run<W>(model, batch, 0, batch.num_rows, threads);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; ++t) run<W>(model, batch, bounds[t], bounds[t + 1], 1);
}

}  // namespace

// Whether bf16 weights multiply fastest packed: dot products want pairs of features, a matrix unit takes them as they lie.
extern "C" bool packs_bf16() { return kHasDots && !has_tiles(); }

// Whether an adapter of a layer of these features is given with its rank filled up to whole tiles, with zeros.
extern "C" bool fills_bf16_ranks(int64_t in, int64_t out) { return fills_ranks(in, out); }

extern "C" void run_fp32(const Model* model, const Batch* batch) { run<float>(*model, *batch); }
extern "C" void run_bf16(const Model* model, const Batch* batch) { run<bf16>(*model, *batch); }
