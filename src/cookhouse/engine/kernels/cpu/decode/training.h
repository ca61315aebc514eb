// The forward of training in bf16, through the functions that sampling goes through: what is computed here and there is the
// same to the bit. Called by kernels/cpu/functions.py.
//
// Legend: N packed positions, I features in, O features out, R rank, H query heads, K key-value heads, D features per head.

#pragma once

#include <omp.h>

#include "attention.h"
#include "rows.h"

extern "C" {

// Mirror those of lora.h and attention.h in kernels/cpu.
struct TrainedSegment {
    int64_t start, stop, rank;
    const void *a, *b;  // (R, I), (O, R)
    float *da, *db;
    double scaling;
};

struct PackedSequences {
    int64_t num_sequences, num_heads, num_kv_heads, key_dim, value_dim;
    int64_t window;         // latest keys that a query sees; 0: all
    const int64_t* starts;  // (sequences + 1): first position of each, and the end
    float scaling;
};
}

namespace {

constexpr int64_t kTrainedRows = 256;      // computed at once: their sums stay in a core's cache
constexpr int64_t kRowsForThreads = 64;    // of each thread; of fewer, threads share the columns
constexpr int64_t kRankTile = 2 * kLanes;  // see `fills_ranks`

// A linear layer over packed positions, some of them with adapters.
class TrainedLayer {
   public:
    TrainedLayer(const TrainedSegment* segments, int64_t count, int64_t rows, Factor base, const bf16* bias) : base_(base) {
        if (bias) {
            bias_.resize(base.out);
            widen_row(bias, base.out, bias_.data());
        }
        int64_t end = 0;
        for (const TrainedSegment* s = segments; s < segments + count; ++s) {
            if (s->start > end) adapters_.push_back({end, s->start});
            adapters_.push_back(filled(*s));
            rank_ = std::max(rank_, adapters_.back().rank);
            end = s->stop;
        }
        if (end < rows) adapters_.push_back({end, rows});
    }

    // Rows [start, stop) of x (N, I) to y (N, O), rounded, or `wide`; `low` (N, low_row) receives A x. Called by each thread
    // of a team.
    void run(const bf16* x, int64_t start, int64_t stop, bf16* y, float* wide, float* low, int64_t low_row, Rooms rooms) const {
        std::vector<Adapter> adapters;
        for (Adapter each : adapters_) {
            each.start = std::max(each.start, start) - start;
            each.stop = std::min(each.stop, stop) - start;
            if (each.start < each.stop) adapters.push_back(each);
        }
        Round target = Round{nullptr, bias_.empty() ? nullptr : bias_.data(), 1.0f, y, wide, false, base_.out}.from(start);
        if (wide) rooms.sums = target.wide;
        project(x + start * base_.in, stop - start, base_, adapters, target, rooms, [&](const Adapter& each, const bf16* scaled) {
            if (!low) return;
#pragma omp for schedule(static)
            for (int64_t r = 0; r < each.stop - each.start; ++r) {
                float* row = low + (start + each.start + r) * low_row;
                for (int64_t i = 0; i < std::min(each.rank, low_row); ++i) row[i] = load1(scaled + r * each.rank + i) / each.scaling;
            }
        });
    }

    int64_t rank() const { return rank_; }

   private:
    Adapter filled(const TrainedSegment& s) {
        Adapter found{s.start, s.stop, s.rank, (const bf16*)s.a, (const bf16*)s.b, float(s.scaling), false};
        if (!fills_ranks(base_.in, base_.out) || s.rank % kRankTile == 0) return found;
        found.rank = (s.rank + kRankTile - 1) / kRankTile * kRankTile;
        std::vector<bf16>& a = copies_.emplace_back(found.rank * base_.in);
        std::copy_n(found.a, s.rank * base_.in, a.data());
        found.a = a.data();
        std::vector<bf16>& b = copies_.emplace_back(found.rank * base_.out);
        for (int64_t o = 0; o < base_.out; ++o) std::copy_n(found.b + o * s.rank, s.rank, b.data() + o * found.rank);
        found.b = b.data();
        return found;
    }

    Factor base_;
    std::vector<float> bias_;
    std::vector<Adapter> adapters_;
    std::vector<std::vector<bf16>> copies_;
    int64_t rank_ = 0;
};

// Room of one team for so many rows.
struct LayerRooms {
    Buffer<float> sums;
    Buffer<bf16> low, packed;

    LayerRooms(int64_t rows, int64_t in, int64_t out, int64_t rank) : sums(rows * out), low(rows * rank), packed((rows + kLanes) * std::max(in, rank)) {}
    Rooms get() { return {sums.data(), low.data(), packed.data()}; }
};

void train_linear(const TrainedLayer& layer, const bf16* x, int64_t rows, int64_t in, int64_t out, bf16* y, float* wide, float* low, int64_t low_row) {
    int64_t threads = omp_get_max_threads(), sums = wide ? 0 : out;
    if (rows < kRowsForThreads * threads) {
        LayerRooms rooms(rows, in, sums, layer.rank());
#pragma omp parallel
        layer.run(x, 0, rows, y, wide, low, low_row, rooms.get());
        return;
    }
    int64_t parts = (rows + kTrainedRows - 1) / kTrainedRows;
    parts = (parts + threads - 1) / threads * threads;
#pragma omp parallel for schedule(dynamic)
    for (int64_t p = 0; p < parts; ++p) {
        int64_t start = rows * p / parts, stop = rows * (p + 1) / parts;
        LayerRooms rooms(stop - start, in, sums, layer.rank());
#pragma omp parallel num_threads(1)
        layer.run(x, start, stop, y, wide, low, low_row, rooms.get());
    }
}

// The attention of one key-value head within one sequence.
class TrainedHead {
   public:
    TrainedHead(const PackedSequences& s, int64_t index)
        : s_(s),
          head_(index % s.num_kv_heads),
          start_(s.starts[index / s.num_kv_heads]),
          length_(s.starts[index / s.num_kv_heads + 1] - start_),
          blocks_((length_ + kBlockSize - 1) / kBlockSize) {}

    void run(const bf16* q, const bf16* k, const bf16* v, bf16* out, float* sums) const {
        int64_t dim = s_.key_dim, group = s_.num_heads / s_.num_kv_heads, size = blocks_ * kBlockSize * dim;
        Buffer<bf16> keys(size), values(size);
        Buffer<float> room(kMaxQueries * (2 * dim + (blocks_ + 2) * kBlockSize));
        std::vector<int64_t> table(blocks_);
        for (int64_t b = 0; b < blocks_; ++b) table[b] = b;
        place(k, v, keys.data(), values.data());
        Context<bf16> context{keys.data(), values.data(), table.data(), kBlockSize * dim, dim, s_.window, s_.scaling};
        float *queries = room.data(), *mixed = queries + kMaxQueries * dim, *scores = mixed + kMaxQueries * dim, logs[kMaxQueries];
        int64_t most = std::max<int64_t>(1, kMaxQueries / group);
        for (int64_t position = 0; position < length_; position += most)
            for (int64_t first = 0; first < group; first += kMaxQueries) {
                int64_t rows = std::min(most, length_ - position), heads = std::min<int64_t>(kMaxQueries, group - first), count = rows * heads;
                int64_t positions[kMaxQueries];
                for (int64_t i = 0; i < kMaxQueries; ++i) positions[i] = position + std::min(i, count - 1) / heads;
                for (int64_t r = 0; r < rows; ++r) widen_row(q + row_of(position + r, first) * dim, heads * dim, queries + r * heads * dim);
                std::fill(queries + count * dim, mixed, 0.0f);
                attend_any(count, context, queries, positions, scores, mixed, logs);
                for (int64_t r = 0; r < rows; ++r) {
                    round_row(mixed + r * heads * dim, heads * dim, out + row_of(position + r, first) * dim);
                    std::copy_n(logs + r * heads, heads, sums + row_of(position + r, first));
                }
            }
    }

   private:
    int64_t row_of(int64_t position, int64_t g) const { return (start_ + position) * s_.num_heads + head_ * (s_.num_heads / s_.num_kv_heads) + g; }

    // Keys and values in blocks, as attention.h has them.
    void place(const bf16* k, const bf16* v, bf16* keys, bf16* values) const {
        int64_t dim = s_.key_dim;
        for (int64_t p = 0; p < length_; ++p) {
            int64_t from = ((start_ + p) * s_.num_kv_heads + head_) * dim, block = p / kBlockSize * kBlockSize * dim;
            for (int64_t i = 0; i < dim; ++i) keys[block + i * kBlockSize + p % kBlockSize] = k[from + i];
            std::copy_n(v + from, dim, values + p * dim);
        }
        for (int64_t p = length_; p < blocks_ * kBlockSize; ++p)
            for (int64_t i = 0; i < dim; ++i) keys[p / kBlockSize * kBlockSize * dim + i * kBlockSize + p % kBlockSize] = {0};
    }

    const PackedSequences& s_;
    int64_t head_, start_, length_, blocks_;
};

}  // namespace

// y (N, O) in bf16, or `wide` in fp32 where that is not null; `low` (N, low_row) receives A x, unless it is null.
extern "C" void rows_linear_bf16(const TrainedSegment* segments, int64_t count, const bf16* x, int64_t rows, int64_t in, const bf16* w, const bf16* bias,
                                 int64_t out, float* low, int64_t low_row, bf16* y, float* wide) {
    TrainedLayer layer(segments, count, rows, {w, in, out, false, is_even(in, out)}, bias);
    train_linear(layer, x, rows, in, out, y, wide, low, low_row);
}

// Keys and values have the same number of features.
extern "C" void rows_attention_bf16(const PackedSequences* s, const bf16* q, const bf16* k, const bf16* v, bf16* out, float* sums) {
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < s->num_sequences * s->num_kv_heads; ++i) TrainedHead(*s, i).run(q, k, v, out, sums);
}

// y in bf16 of the residual stream x.
extern "C" void residual_norm_bf16(const float* x, const float* weight, float eps, int64_t rows, int64_t n, bf16* y) {
#pragma omp parallel
    {
        Buffer<float> room(n);
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; ++r) rounded_norm(x + r * n, weight, eps, n, y + r * n, room.data());
    }
}

extern "C" void rows_rotate_bf16(const bf16* x, const float* weight, float eps, const float* cos, const float* sin, int64_t rows, int64_t heads, int64_t dim,
                                 bf16* y) {
#pragma omp parallel
    {
        Buffer<float> room(2 * dim);
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t h = r * heads; h < (r + 1) * heads; ++h)
                rounded_rotation(x + h * dim, weight, eps, cos + r * dim, sin + r * dim, dim, y + h * dim, room.data());
    }
}

extern "C" void rows_gate_bf16(const bf16* gate, const bf16* up, int64_t size, bf16* y) {
    constexpr int64_t kChunk = 1024;
#pragma omp parallel for schedule(static)
    for (int64_t start = 0; start < size; start += kChunk) rounded_gate(gate + start, up + start, std::min(kChunk, size - start), y + start);
}
