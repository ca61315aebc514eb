// Products with bf16 weights on the matrix unit of x86 processors that have one (AMX): rows are rounded to bf16, sums
// are fp32. Each output is summed over pairs of features in their order, whatever the other rows are.
//
// The product is taken as w · xᵀ, since tiles of w (16 features out, 32 in) then lie in memory as the unit wants them
// and only the few rows of x need packing.

#pragma once

#include "matmul.h"

#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr int64_t kTileIn = 32;                  // features in of a tile
constexpr int64_t kTileSize = kLanes * kTileIn;  // bf16 numbers in a tile

// Whether the kernel of the operating system lets this process use tiles; asks for it the first time.
inline bool has_tiles() {
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    static const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
    return allowed;
}

inline bool fits_tiles(int64_t in, int64_t out) { return in % kTileIn == 0 && out % kLanes == 0 && has_tiles(); }

// Lanes of a with bit H change places with those of b without it.
template <int H, int... L>
inline void exchange(Vec& a, Vec& b, std::integer_sequence<int, L...>) {
    Vec low = shuffle<((L & H) ? (L ^ H) + kLanes : L)...>(a, b);
    b = shuffle<((L & H) ? L + kLanes : (L ^ H))...>(a, b);
    a = low;
}
template <int H>
inline void exchange_all(Vec v[kLanes]) {
    for (int i = 0; i < kLanes; ++i)
        if (!(i & H)) exchange<H>(v[i], v[i | H], Lanes());
}
inline void transpose(Vec v[kLanes]) {
    exchange_all<8>(v);
    exchange_all<4>(v);
    exchange_all<2>(v);
    exchange_all<1>(v);
}

// x (rows, I) as tiles (rows / 16, I / 32), each of (16 pairs of features, 16 rows); missing rows are zero.
inline void pack(const float* x, int64_t rows, int64_t in, bf16* packed) {
#pragma omp for schedule(static)
    for (int64_t start = 0; start < rows; start += kLanes)
        for (int64_t i = 0; i < in; i += kTileIn) {
            Vec pairs[kLanes] = {};
            for (int64_t r = 0; r < std::min<int64_t>(kLanes, rows - start); ++r) {
                const float* row = x + (start + r) * in + i;
                __m512bh rounded = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(row + kLanes), _mm512_loadu_ps(row));
                std::memcpy(&pairs[r], &rounded, sizeof rounded);
            }
            transpose(pairs);
            std::memcpy(packed + start * in + i * kLanes, pairs, sizeof pairs);
        }
}

// sums (NW, NX, 16 features out, 16 rows) of NW tiles of w, one below the other, with NX tiles of rows.
template <int NW, int NX>
inline void tile_products(const bf16* w, const bf16* packed, int64_t in, Vec* sums) {
    const int64_t stride = in * sizeof(bf16);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t i = 0; i < in; i += kTileIn) {
        _tile_loadd(4, w + i, stride);
        _tile_loadd(6, packed + i * kLanes, 64);
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (NX == 2) {
            _tile_loadd(7, packed + (in + i) * kLanes, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if constexpr (NW == 2) {
            _tile_loadd(5, w + kLanes * in + i, stride);
            _tile_dpbf16ps(2, 5, 6);
            if constexpr (NX == 2) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, 64);
    if constexpr (NX == 2) _tile_stored(1, sums + kLanes, 64);
    if constexpr (NW == 2) _tile_stored(2, sums + NX * kLanes, 64);
    if constexpr (NW == 2 && NX == 2) _tile_stored(3, sums + 3 * kLanes, 64);
}

template <int NW, int NX>
inline void tile_panel(const bf16* w, const bf16* packed, int64_t rows, int64_t in, float* y, int64_t out, int64_t column, Finish finish) {
    Vec products[NW * NX * kLanes];
    tile_products<NW, NX>(w + column * in, packed, in, products);
    for (int t = 0; t < NW * NX; ++t) {
        Vec* block = products + t * kLanes;
        int64_t first = t % NX * kLanes;
        transpose(block);
        for (int64_t r = 0; r < std::min<int64_t>(kLanes, rows - first); ++r)
            finish((const float*)(block + r), kLanes, y + (first + r) * out, column + t / NX * kLanes);
    }
}

// As `matmul`; `packed` has room for x with its rows rounded up to 16.
inline void tile_matmul(const float* x, int64_t rows, int64_t in, const bf16* w, int64_t out, float* y, Finish finish, bf16* packed) {
    struct alignas(64) Shapes {
        uint8_t palette = 1, first_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        uint8_t num_rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } shapes;
    pack(x, rows, in, packed);
    _tile_loadconfig(&shapes);
#pragma omp for schedule(static)
    for (int64_t column = 0; column < out; column += 2 * kLanes)
        for (int64_t r = 0; r < rows; r += 2 * kLanes) {
            bool is_wide = rows - r > kLanes, is_high = out - column > kLanes;
            auto run = is_high ? (is_wide ? tile_panel<2, 2> : tile_panel<2, 1>) : (is_wide ? tile_panel<1, 2> : tile_panel<1, 1>);
            run(w, packed + r * in, rows - r, in, y + r * out, out, column, finish);
        }
    _tile_release();
}

}  // namespace

#else

namespace {

inline bool has_tiles() { return false; }
inline bool fits_tiles(int64_t, int64_t) { return false; }
inline void tile_matmul(const float*, int64_t, int64_t, const bf16*, int64_t, float*, Finish, bf16*) {}

}  // namespace

#endif
