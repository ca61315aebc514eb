// Products of fp32 rows with fp32 or bf16 weights: each output is summed in an order that only its length and the layout
// of the weights decide.
//
// Legend: I features in, O features out.

#pragma once

#include <omp.h>

#include "targets.h"

namespace {

constexpr int64_t kAheadBytes = 2048;  // weights are fetched so long before they are used

// Dot products of MR rows of x with NR rows of w, lane by lane, of the features that fill whole vectors; rows of `acc` are
// `stride` apart.
template <int MR, int NR, typename X, typename W>
inline __attribute__((always_inline)) void add_dots(const X* x, int64_t x_stride, const W* w, int64_t w_stride, int64_t n, Vec* acc, int stride) {
    Register sums[MR][NR][kRegisters] = {};
    for (int64_t i = 0; i + kLanes <= n; i += kLanes)
#pragma GCC unroll 2
        for (int h = 0; h < kRegisters; ++h) {
            Register xv[MR];
#pragma GCC unroll 16
            for (int r = 0; r < MR; ++r) xv[r] = load_register(x + r * x_stride + i + h * kRegister);
#pragma GCC unroll 16
            for (int c = 0; c < NR; ++c) {
                Register wv = load_register(w + c * w_stride + i + h * kRegister);
#pragma GCC unroll 16
                for (int r = 0; r < MR; ++r) sums[r][c][h] += xv[r] * wv;
            }
        }
    for (int r = 0; r < MR; ++r)
        for (int c = 0; c < NR; ++c) std::memcpy(&acc[r * stride + c], sums[r][c], sizeof(Vec));
}

// Dot products, of n features each, of MR rows of x with NR rows of w.
template <int MR, int NR, typename X, typename W>
inline void tile(const X* x, int64_t x_stride, const W* w, int64_t w_stride, int64_t n, float out[MR * NR]) {
    Vec acc[MR * NR];
    constexpr int kAtOnce = std::min(NR, std::max(1, kSums / MR));
    for (int first = 0; first < NR; first += kAtOnce) {
        constexpr int kRest = NR % kAtOnce;
        if (kRest && first + kAtOnce > NR) add_dots<MR, kRest ? kRest : 1>(x, x_stride, w + first * w_stride, w_stride, n, acc + first, NR);
        else add_dots<MR, kAtOnce>(x, x_stride, w + first * w_stride, w_stride, n, acc + first, NR);
    }
    int64_t i = n / kLanes * kLanes;
    if constexpr (MR * NR == kLanes) store(out, sums(acc));
    else for (int c = 0; c < MR * NR; ++c) out[c] = sum(acc[c]);
    for (; i < n; ++i)
        for (int r = 0; r < MR; ++r)
            for (int c = 0; c < NR; ++c) out[r * NR + c] += load1(x + r * x_stride + i) * load1(w + c * w_stride + i);
}

template <int MR, int NR, typename W, typename Target>
inline void panel(const W* x, int64_t in, const W* w, int64_t row, int64_t column, Target target) {
    alignas(64) float t[MR * NR];
    tile<MR, NR>(x, in, w + column * in, in, in, t);
    for (int r = 0; r < MR; ++r) {
        if (const float* before = target.before(row + r, column)) {
            for (int c = 0; c < NR; ++c) t[r * NR + c] += before[c];
            __asm__ volatile("" : "+m"(t));  // or sums of three might be added in another order for panels of another size
        }
        target(t + r * NR, NR, row + r, column);
    }
}

// acc (MR, NP) += x (MR, n) · w (n, NP): the vectors of column p lie `step` apart from w[p] on.
template <int MR, int NP, typename W>
inline __attribute__((always_inline)) void accumulate(Vec (&acc)[MR][NP], const float* x, int64_t x_stride, const W* const (&w)[NP], int64_t step, int64_t n) {
    constexpr int kRows = std::max(1, kSums / NP);
    if constexpr (MR > kRows) {  // some rows after the other
        accumulate<kRows, NP>(reinterpret_cast<Vec(&)[kRows][NP]>(acc), x, x_stride, w, step, n);
        accumulate<MR - kRows, NP>(reinterpret_cast<Vec(&)[MR - kRows][NP]>(acc[kRows]), x + kRows * x_stride, x_stride, w, step, n);
    } else {
        Register sums[MR][NP * kRegisters];
        std::memcpy(sums, acc, sizeof sums);
        for (int64_t i = 0; i < n; ++i) {
            Register wv[NP * kRegisters];
#pragma GCC unroll 8  // else the sums are kept in memory
            for (int p = 0; p < NP * kRegisters; ++p) wv[p] = load_register(w[p / kRegisters] + i * step + p % kRegisters * kRegister);
#pragma GCC unroll 4
            for (int p = 0; p < NP; ++p) __builtin_prefetch(w[p] + i * step + kAheadBytes / sizeof(W));
#pragma GCC unroll 16
            for (int r = 0; r < MR; ++r)
#pragma GCC unroll 8
                for (int p = 0; p < NP * kRegisters; ++p) sums[r][p] += x[r * x_stride + i] * wv[p];
        }
        std::memcpy(acc, sums, sizeof sums);
    }
}

#ifdef __AVX512BF16__
constexpr bool kHasDots = true;

// As above, of rows and weights in bf16: a vector has a pair of features of 16 columns, and pairs are summed in order.
template <int MR, int NP>
inline __attribute__((always_inline)) void accumulate(Vec (&acc)[MR][NP], const bf16* x, int64_t x_stride, const bf16* const (&w)[NP], int64_t step, int64_t n) {
    for (int64_t i = 0; i < n; i += 2) {
        __m512bh wv[NP];
#pragma GCC unroll 4
        for (int p = 0; p < NP; ++p) {
            std::memcpy(&wv[p], w[p] + i * step, sizeof wv[p]);
            __builtin_prefetch(w[p] + i * step + kAheadBytes / sizeof(bf16));
        }
#pragma GCC unroll 16
        for (int r = 0; r < MR; ++r) {
            int32_t pair;
            std::memcpy(&pair, x + r * x_stride + i, sizeof pair);
            __m512i pairs = _mm512_set1_epi32(pair);
#pragma GCC unroll 4
            for (int p = 0; p < NP; ++p) acc[r][p] = (Vec)_mm512_dpbf16_ps((__m512)acc[r][p], (__m512bh)pairs, wv[p]);
        }
    }
}
#else
constexpr bool kHasDots = false;
#endif

template <int MR, int NP, typename W, typename Target>
inline void packed_panel(const W* x, int64_t in, const W* w, int64_t row, int64_t column, Target target) {
    const W* columns[NP];
    for (int p = 0; p < NP; ++p) columns[p] = w + p * kLanes * in;
    Vec acc[MR][NP] = {};
    for (int r = 0; r < MR; ++r)
        if (const float* before = target.before(row + r, column)) std::memcpy(acc[r], before, sizeof acc[r]);
    accumulate<MR, NP>(acc, x, in, columns, kLanes, in);
    for (int r = 0; r < MR; ++r) target((const float*)acc[r], NP * kLanes, row + r, column);
}

constexpr int kPanel = 24;  // vectors of sums of a panel

// Rows go through the panels in parts as equal as can be: few rows at a time wait for the sums of the last feature.
template <int NP, typename W, typename Target, int... MR>
inline void packed_parts(const W* x, int64_t rows, int64_t in, const W* w, int64_t column, Target target, std::integer_sequence<int, MR...>) {
    constexpr decltype(&packed_panel<1, NP, W, Target>) panels[] = {packed_panel<MR + 1, NP, W, Target>...};
    constexpr int64_t kMost = sizeof...(MR);
    int64_t parts = (rows + kMost - 1) / kMost;
    for (int64_t p = 0, r = 0, next; p < parts; ++p, r = next) {
        next = rows * (p + 1) / parts;
        panels[next - r - 1](x + r * in, in, w, r, column, target);
    }
}

// `w` is that of the panel's first column.
template <int NP, typename W, typename Target>
inline void packed_panels(const W* x, int64_t rows, int64_t in, const W* w, int64_t column, Target target) {
    packed_parts<NP>(x, rows, in, w, column, target, std::make_integer_sequence<int, std::min(12, kPanel / NP)>());
}

// Calls f(panel of so many vectors, first column) with panels that cover all columns, of one thread or shared by all.
template <typename F>
inline void each_panel(int64_t out, F f) {
    // Wide panels read each row least often; where threads share the columns, narrow ones are shared more evenly.
    int64_t wide = kRegisters == 1 && omp_get_num_threads() == 1 ? out / (4 * kLanes) * 4 * kLanes : 0;
    for (int64_t column = 0; column < wide; column += 4 * kLanes) f(std::integral_constant<int, 4>(), column);
#pragma omp for schedule(static)
    for (int64_t column = wide; column < out; column += 2 * kLanes)
        if (out - column > kLanes) f(std::integral_constant<int, 2>(), column);
        else f(std::integral_constant<int, 1>(), column);
}

// As `matmul`, of weights packed as (O / 16, I, 16); in bf16 as (O / 16, I / 2, 16, 2).
template <typename W, typename Target>
inline void packed_matmul(const W* x, int64_t rows, int64_t in, const W* w, int64_t out, Target target) {
    each_panel(out, [&](auto size, int64_t column) { packed_panels<size.value>(x, rows, in, w + column * in, column, target); });
}

// x (rows, I) · w (O, I)ᵀ, to the target. Called inside a parallel region; ends in a barrier.
template <typename W, typename Target>
void matmul(const W* x, int64_t rows, int64_t in, const W* w, int64_t out, Target target) {
    constexpr int64_t kColumns = 16;
#pragma omp for schedule(static)
    for (int64_t start = 0; start < out; start += kColumns) {
        int64_t stop = std::min(start + kColumns, out), r = 0;
        for (; r + 4 <= rows; r += 4) {
            int64_t c = start;
            for (; c + 4 <= stop; c += 4) panel<4, 4>(x + r * in, in, w, r, c, target);
            for (; c < stop; ++c) panel<4, 1>(x + r * in, in, w, r, c, target);
        }
        for (; r < rows; ++r) {
            int64_t c = start;
            for (; c + kColumns <= stop; c += kColumns) panel<1, kColumns>(x + r * in, in, w, r, c, target);
            for (; c < stop; ++c) panel<1, 1>(x + r * in, in, w, r, c, target);
        }
    }
}

// Packs the columns [column, column + 16) of w (O, I) in bf16, I even, as `packed_matmul` reads them.
inline void pack_columns(const bf16* w, int64_t in, bf16* packed) {
    constexpr int64_t kAtOnce = 2 * kLanes;
    int64_t i = 0;
    for (; i + kAtOnce <= in; i += kAtOnce, packed += kAtOnce * kLanes) {
        Vec pairs[kLanes];
        for (int64_t c = 0; c < kLanes; ++c) std::memcpy(&pairs[c], w + c * in + i, sizeof pairs[c]);
        transpose(pairs);
        std::memcpy(packed, pairs, sizeof pairs);
    }
    for (; i < in; i += 2, packed += 2 * kLanes)
        for (int64_t c = 0; c < kLanes; ++c) std::memcpy(packed + 2 * c, w + c * in + i, 2 * sizeof(bf16));
}

// As `packed_matmul`, of weights in bf16 as they lie, (O, I): each panel is packed for this product alone.
template <typename Target>
inline void packing_matmul(const bf16* x, int64_t rows, int64_t in, const bf16* w, int64_t out, Target target) {
    thread_local std::unique_ptr<Buffer<bf16>> room;
    thread_local int64_t size = 0;
    if (size < 4 * kLanes * in) room = std::make_unique<Buffer<bf16>>(size = 4 * kLanes * in);
    each_panel(out, [&](auto panel, int64_t column) {
        bf16* packed = room->data();
        for (int p = 0; p < panel.value; ++p) pack_columns(w + (column + p * kLanes) * in, in, packed + p * kLanes * in);
        packed_panels<panel.value>(x, rows, in, packed, column, target);
    });
}

}  // namespace
