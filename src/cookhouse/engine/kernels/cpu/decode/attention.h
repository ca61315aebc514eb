// Softmax attention of a few queries of one sequence and one key-value head at a time, over the blocks of the cache.
//
// In a block, keys lie as (K, D, 16 positions) and values as (K, 16 positions, D), so that scores of 16 keys and 16
// features of values are vectors, and no sum is over the lanes of one. Each score is summed over features in their order,
// each output over keys in their order, whatever the other queries are: hidden keys add nothing.
//
// Legend: K key-value heads, D features per head, MR queries.

#pragma once

#include <cmath>

#include "matmul.h"

namespace {

constexpr int64_t kBlockSize = kLanes;  // positions side by side in the cache
constexpr int kMaxQueries = 12;

// What the queries of one sequence see of one layer.
template <typename W>
struct Context {
    const W* keys;  // of the first block
    const W* values;
    const int64_t* blocks;  // block table of the sequence
    int64_t block_stride;   // numbers in a block, of all heads
    int64_t dim;
    int64_t window;  // latest keys that a query sees; 0: all
    float scaling;

    int64_t first_seen(int64_t position) const { return window ? std::max<int64_t>(0, position + 1 - window) : 0; }
};

// Products of MR queries with the keys of the NP blocks from `block` on.
template <int MR, int NP, typename W>
inline void score(const Context<W>& context, const float* q, int64_t block, float* scores, int64_t stride) {
    const W* keys[NP];
    for (int p = 0; p < NP; ++p) keys[p] = context.keys + context.blocks[block + p] * context.block_stride;
    Vec acc[MR][NP] = {};
    accumulate<MR, NP>(acc, q, context.dim, keys, kLanes, context.dim);
    for (int r = 0; r < MR; ++r)
        for (int p = 0; p < NP; ++p) store(scores + r * stride + p * kLanes, acc[r][p]);
}

// What to scale the weights of a query by, and the logarithm of the sum of the exponentials of its scores.
struct Softmax {
    float factor, log;
};

// Scores of the keys [start, stop) of `size` become weights, those of the others nothing.
inline Softmax soften(float* scores, int64_t start, int64_t stop, int64_t size, float scaling) {
    std::fill(scores, scores + start, -INFINITY);
    std::fill(scores + stop, scores + size, -INFINITY);
    Vec most = load(scores);
    for (int64_t j = kLanes; j < size; j += kLanes) {
        Vec s = load(scores + j);
        most = s > most ? s : most;
    }
    float largest = most[0];
    for (int lane = 1; lane < kLanes; ++lane) largest = std::max(largest, most[lane]);
    Vec total = {};
    for (int64_t j = 0; j < size; j += kLanes) {
        Vec s = load(scores + j), weights = exp((s - largest) * scaling);
        weights = s == -INFINITY ? Vec{} : weights;
        total += weights;
        store(scores + j, weights);
    }
    float whole = sum(total);
    return {1.0f / whole, largest * scaling + std::log(whole)};
}

// NP · 16 features of MR weighted sums of the values at [first, stop), `first` at the start of a block.
template <int MR, int NP, typename W>
inline void mix(const Context<W>& context, const float* weights, int64_t stride, int64_t first, int64_t stop, int64_t feature, const float* factors, float* out) {
    Vec acc[MR][NP] = {};
    for (int64_t j = first; j < stop; j += kBlockSize) {
        const W* values[NP];
        for (int p = 0; p < NP; ++p) values[p] = context.values + context.blocks[j / kBlockSize] * context.block_stride + feature + p * kLanes;
        // Slots that no query sees may hold anything, and nothing times that need not be nothing.
        accumulate<MR, NP>(acc, weights + j - first, stride, values, context.dim, std::min(kBlockSize, stop - j));
    }
    for (int r = 0; r < MR; ++r)
        for (int p = 0; p < NP; ++p) store(out + r * context.dim + feature + p * kLanes, acc[r][p] * factors[r]);
}

// Outputs (MR, D) of queries (MR, D) at ascending positions; `scores` has room for MR rows of all blocks they see, `logs`
// for MR numbers.
template <int MR, typename W>
void attend(const Context<W>& context, const float* q, const int64_t* positions, float* scores, float* out, float* logs) {
    constexpr int NP = MR > 4 ? 2 : 4;
    int64_t stop = positions[MR - 1] + 1, block = context.first_seen(positions[0]) / kBlockSize;
    int64_t first = block * kBlockSize, num_blocks = (stop - first + kBlockSize - 1) / kBlockSize, stride = num_blocks * kBlockSize, b = 0;
    for (; b + NP <= num_blocks; b += NP) score<MR, NP>(context, q, block + b, scores + b * kBlockSize, stride);
    for (; b < num_blocks; ++b) score<MR, 1>(context, q, block + b, scores + b * kBlockSize, stride);
    float factors[MR];
    for (int r = 0; r < MR; ++r) {
        Softmax softmax = soften(scores + r * stride, context.first_seen(positions[r]) - first, positions[r] + 1 - first, stride, context.scaling);
        factors[r] = softmax.factor;
        logs[r] = softmax.log;
    }
    int64_t i = 0;
    for (; i + NP * kLanes <= context.dim; i += NP * kLanes) mix<MR, NP>(context, scores, stride, first, stop, i, factors, out);
    if constexpr (NP > 2)
        for (; i + 2 * kLanes <= context.dim; i += 2 * kLanes) mix<MR, 2>(context, scores, stride, first, stop, i, factors, out);
    for (; i + kLanes <= context.dim; i += kLanes) mix<MR, 1>(context, scores, stride, first, stop, i, factors, out);
    for (; i < context.dim; ++i)
        for (int r = 0; r < MR; ++r) {
            float mixed = 0;
            for (int64_t j = first; j < stop; ++j)
                mixed += scores[r * stride + j - first] * load1(context.values + context.blocks[j / kBlockSize] * context.block_stride + j % kBlockSize * context.dim + i);
            out[r * context.dim + i] = mixed * factors[r];
        }
}

// As above for `count` queries, up to kMaxQueries, with rows added up to the next size there is.
template <typename W>
void attend_any(int64_t count, const Context<W>& context, const float* q, const int64_t* positions, float* scores, float* out, float* logs) {
    auto run = count > 8 ? attend<12, W> : count > 4 ? attend<8, W> : count > 2 ? attend<4, W> : count > 1 ? attend<2, W> : attend<1, W>;
    run(context, q, positions, scores, out, logs);
}

}  // namespace
