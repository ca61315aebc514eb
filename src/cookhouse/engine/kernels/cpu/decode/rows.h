// What a layer of a model in bf16 does with its rows, for sampling and training alike: both go through these functions as
// they are compiled here once, so that a row comes out the same to the bit. The residual stream and all sums are fp32; what
// a product multiplies is rounded to bf16, and so is what it gives.
//
// Legend: I features in, O features out, R rank, D features per head.

#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tiles.h"

#define ONE_CODE __attribute__((noinline))  // where it is inlined, it might be rounded in another order

namespace {

// y = x · weight / rms(x)
inline void norm_row(const float* x, const float* weight, float eps, int64_t n, float* y) {
    Vec total = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) total += load(x + i) * load(x + i);
    float squares = sum(total);
    for (; i < n; ++i) squares += x[i] * x[i];
    float factor = 1.0f / std::sqrt(squares / float(n) + eps);
    for (i = 0; i + kLanes <= n; i += kLanes) store(y + i, load(x + i) * factor * load(weight + i));
    for (; i < n; ++i) y[i] = x[i] * factor * weight[i];
}

inline void widen_row(const float* x, int64_t n, float* y) { std::copy_n(x, n, y); }
inline void widen_row(const bf16* x, int64_t n, float* y) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(y + i, load(x + i));
    for (; i < n; ++i) y[i] = load1(x + i);
}
inline void round_row(const float* x, int64_t n, float* y) { std::copy_n(x, n, y); }
inline void round_row(const float* x, int64_t n, bf16* y) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(y + i, load(x + i));
    for (; i < n; ++i) store1(y + i, x[i]);
}

// The norm of a row of the residual stream; `room` has n numbers.
ONE_CODE void rounded_norm(const float* x, const float* weight, float eps, int64_t n, bf16* y, float* room) {
    norm_row(x, weight, eps, n, room);
    round_row(room, n, y);
}

// A head, normalized if there is a weight, with its halves rotated: x cos + rotate_half(x) sin. y may be x; `room` has 2 D
// numbers.
ONE_CODE void rounded_rotation(const bf16* x, const float* weight, float eps, const float* cos, const float* sin, int64_t dim, bf16* y, float* room) {
    float *head = room, *turned = room + dim;
    widen_row(x, dim, head);
    if (weight) norm_row(head, weight, eps, dim, head);
    int64_t half = dim / 2, i = 0;
    for (; i + kLanes <= half; i += kLanes) {
        Vec a = load(head + i), b = load(head + half + i);
        store(turned + i, a * load(cos + i) - b * load(sin + i));
        store(turned + half + i, b * load(cos + half + i) + a * load(sin + half + i));
    }
    for (; i < half; ++i) {
        float a = head[i], b = head[half + i];
        turned[i] = a * cos[i] - b * sin[i];
        turned[half + i] = b * cos[half + i] + a * sin[half + i];
    }
    round_row(turned, dim, y);
}

// y = silu(gate) · up; y may be either.
ONE_CODE void rounded_gate(const bf16* gate, const bf16* up, int64_t n, bf16* y) {
    auto step = [](Vec g, Vec u) { return g / (1.0f + exp(-g)) * u; };
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(y + i, step(load(gate + i), load(up + i)));
    if (i == n) return;
    bf16 gates[kLanes] = {}, ups[kLanes] = {}, rest[kLanes];
    std::memcpy(gates, gate + i, (n - i) * sizeof(bf16));
    std::memcpy(ups, up + i, (n - i) * sizeof(bf16));
    store(rest, step(load(gates), load(ups)));
    std::memcpy(y + i, rest, (n - i) * sizeof(bf16));
}

// A matrix (O, I), as it lies or packed. `is_even`: I and O are such that its products go by pairs of features.
struct Factor {
    const bf16* w;
    int64_t in, out;
    bool is_packed, is_even;
};

// Rows of x times a matrix. Which sums are taken in which order is decided by the matrix's shape and the processor: not by
// the number of rows, nor by whether it is packed. `room` has space for x with its rows rounded up to 16.
ONE_CODE void product(const bf16* x, int64_t rows, Factor factor, Round target, bf16* room) {
    if constexpr (kHasDots) {
        if (factor.is_packed) return packed_matmul<bf16>(x, rows, factor.in, factor.w, factor.out, target);
        if (factor.is_even && !has_tiles()) return packing_matmul(x, rows, factor.in, factor.w, factor.out, target);
    }
    if (fits_tiles(factor.in, factor.out)) return tile_matmul(x, rows, factor.in, factor.w, factor.out, target, room);
    matmul<bf16>(x, rows, factor.in, factor.w, factor.out, target);
}

inline bool is_even(int64_t in, int64_t out) { return in % 2 == 0 && out % kLanes == 0; }

// Whether the adapters of a layer have ranks of whole tiles, filled up with zeros.
inline bool fills_ranks(int64_t in, int64_t out) { return kHasDots && in % kLanes == 0 && out % kLanes == 0; }

// The adapter of the rows [start, stop) of a layer: y += B · (scaling · A x), of which the right factor is rounded. A null
// `a` is no adapter.
struct Adapter {
    int64_t start, stop, rank;
    const bf16 *a, *b;  // (R, I), (O, R)
    float scaling;
    bool is_packed;
};

// What `project` writes to on its way, for so many rows.
struct Rooms {
    float* sums;   // (rows, O); may be where the result goes
    bf16 *low;     // (rows, R) of the largest rank
    bf16* packed;  // (rows rounded up to 16, the most features)
};

// A layer with the adapters of its rows. They are all of the rows, in order. `tell(adapter, low)` is called with what each
// multiplies B by, (its rows, R).
template <typename F>
void project(const bf16* x, int64_t rows, Factor base, const std::vector<Adapter>& adapters, Round target, Rooms rooms, F tell) {
    bool is_adapted = false;
    for (const Adapter& each : adapters) is_adapted |= each.a && each.stop > each.start;
    if (!is_adapted) return product(x, rows, base, target, rooms.packed);
    product(x, rows, base, {nullptr, nullptr, 1.0f, nullptr, rooms.sums, false, base.out}, rooms.packed);
    for (const Adapter& each : adapters) {
        int64_t count = each.stop - each.start;
        if (!count) continue;
        Round rest = target.from(each.start);
        rest.sums = rooms.sums + each.start * base.out;
        if (!each.a) {
#pragma omp for schedule(static)
            for (int64_t r = 0; r < count; ++r) rest(rest.sums + r * base.out, base.out, r, 0);
            continue;
        }
        bool by_pairs = fills_ranks(base.in, base.out);
        Round low{nullptr, nullptr, each.scaling, rooms.low, nullptr, false, each.rank};
        product(x + each.start * base.in, count, {each.a, base.in, each.rank, each.is_packed, by_pairs}, low, rooms.packed);
        tell(each, rooms.low);
        product(rooms.low, count, {each.b, each.rank, base.out, each.is_packed, by_pairs}, rest, rooms.packed);
    }
}

}  // namespace
