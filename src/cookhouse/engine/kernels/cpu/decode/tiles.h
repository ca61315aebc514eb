// Products of bf16 rows with bf16 weights on the matrix unit of x86 processors that have one (AMX); sums are fp32. Each
// output is summed over pairs of features in their order, whatever the other rows are.
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

// x (rows, I) as tiles (rows / 16, I / 32), each of (16 pairs of features, 16 rows); missing rows are zero.
inline void pack(const bf16* x, int64_t rows, int64_t in, bf16* packed) {
#pragma omp for schedule(static)
    for (int64_t start = 0; start < rows; start += kLanes)
        for (int64_t i = 0; i < in; i += kTileIn) {
            Vec pairs[kLanes] = {};
            for (int64_t r = 0; r < std::min<int64_t>(kLanes, rows - start); ++r) std::memcpy(&pairs[r], x + (start + r) * in + i, sizeof pairs[r]);
            transpose(pairs);
            std::memcpy(packed + start * in + i * kLanes, pairs, sizeof pairs);
        }
}

// sums (NW, NX, 16 features out, 16 rows) += products of NW tiles of w, one below the other, with NX tiles of rows.
template <int NW, int NX>
inline void tile_products(const bf16* w, const bf16* packed, int64_t in, bool is_new, Vec* sums) {
    const int64_t stride = in * sizeof(bf16);
    if (is_new) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, sums, 64);
        if constexpr (NX == 2) _tile_loadd(1, sums + kLanes, 64);
        if constexpr (NW == 2) _tile_loadd(2, sums + NX * kLanes, 64);
        if constexpr (NW == 2 && NX == 2) _tile_loadd(3, sums + 3 * kLanes, 64);
    }
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

template <int NW, int NX, typename Target>
inline void tile_panel(const bf16* w, const bf16* packed, int64_t rows, int64_t in, int64_t row, int64_t column, Target target) {
    Vec products[NW * NX * kLanes];
    auto each_block = [&](auto f) {
        for (int t = 0; t < NW * NX; ++t) {
            int64_t first = row + t % NX * kLanes;
            f(products + t * kLanes, first, std::min<int64_t>(kLanes, rows - first), column + t / NX * kLanes);
        }
    };
    bool is_new = !target.before(row, column);
    if (!is_new)
        each_block([&](Vec* block, int64_t first, int64_t count, int64_t start) {
            for (int64_t r = 0; r < kLanes; ++r) block[r] = r < count ? load(target.before(first + r, start)) : Vec{};
            transpose(block);
        });
    tile_products<NW, NX>(w + column * in, packed + row * in, in, is_new, products);
    each_block([&](Vec* block, int64_t first, int64_t count, int64_t start) {
        transpose(block);
        for (int64_t r = 0; r < count; ++r) target((const float*)(block + r), kLanes, first + r, start);
    });
}

// As `matmul`; `packed` has room for x with its rows rounded up to 16.
template <typename Target>
inline void tile_matmul(const bf16* x, int64_t rows, int64_t in, const bf16* w, int64_t out, Target target, bf16* packed) {
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
            auto run = is_high ? (is_wide ? tile_panel<2, 2, Target> : tile_panel<2, 1, Target>) : (is_wide ? tile_panel<1, 2, Target> : tile_panel<1, 1, Target>);
            run(w, packed, rows, in, r, column, target);
        }
    _tile_release();
}

}  // namespace

#else

namespace {

inline bool has_tiles() { return false; }
inline bool fits_tiles(int64_t, int64_t) { return false; }
template <typename Target>
inline void tile_matmul(const bf16*, int64_t, int64_t, const bf16*, int64_t, Target, bf16*) {}

}  // namespace

#endif
