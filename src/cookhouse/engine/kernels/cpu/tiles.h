// Products of bf16 matrices on the matrix unit of x86 processors that have one (AMX), in blocks of 32 rows and columns;
// sums are fp32.
//
// The left matrix is read where it lies, the right one packed into panels of 32 columns. In a panel, as in a block of
// sums, the even columns come before the odd ones: pairs of rows then become pairs of numbers without a shuffle.

#pragma once

#include "lanes.h"

#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__linux__)
#define HAS_TILES
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr int64_t kEdge = 32;             // rows and columns of a block, and features that one step sums over
constexpr int64_t kArea = kEdge * kEdge;  // numbers of a block, and of one step of a panel

inline int64_t edges(int64_t n) { return (n + kEdge - 1) / kEdge; }

// Whether the kernel of the operating system lets this process use tiles; asks for it the first time.
inline bool are_tiles_allowed() {
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    static const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
    return allowed;
}

// While it lives, this thread's tiles are 16 rows of 64 bytes.
class Tiles {
   public:
    Tiles() {
        struct alignas(64) {
            uint8_t palette = 1, first_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            uint8_t num_rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } shapes;
        _tile_loadconfig(&shapes);
    }
    ~Tiles() { _tile_release(); }
};

// Numbers kept from call to call, none of whose rows of 64 bytes straddles two lines of the processor's cache.
class Room {
   public:
    bf16* take(int64_t n) {
        if (int64_t(lines_.size()) < edges(n)) lines_.resize(edges(n));
        return reinterpret_cast<bf16*>(lines_.data());
    }

   private:
    struct alignas(64) Line {
        bf16 numbers[kEdge];
    };
    std::vector<Line> lines_;
};

struct alignas(64) Block {
    float rows[kEdge][kEdge];
};

// 32 rows, `stride` apart: where they are or, if there are only `count`, copied with zeros behind, n apart.
struct Left {
    const bf16* data;
    int64_t stride;

    Left(const bf16* rows, int64_t n, int64_t apart, int64_t count, Room& room) : data(rows), stride(apart) {
        if (count >= kEdge) return;
        bf16* copy = room.take(kEdge * n);
        for (int64_t i = 0; i < count; ++i) std::memcpy(copy + i * n, rows + i * apart, n * sizeof(bf16));
        std::memset(copy + count * n, 0, (kEdge - count) * n * sizeof(bf16));
        data = copy;
        stride = n;
    }
};

// The first n of 32 numbers, the others zero; none for n <= 0.
inline __m512i load_row(const bf16* p, int64_t n) {
    return n >= kEdge ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16(n > 0 ? (__mmask32(1) << n) - 1 : 0, p);
}
inline void store_row(bf16* p, Vec low, Vec high) {
    __m512bh both = _mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
    std::memcpy(p, &both, sizeof both);
}

inline void store_row(float* p, Vec low, Vec high) {
    store(p, low);
    store(p + kLanes, high);
}

// A right matrix (k, n), or its transposed as it lies in memory (n, k); rows are `stride` apart.
struct Right {
    const bf16* data;
    int64_t k, n;
    bool is_transposed;
    int64_t stride;

    int64_t panel_size() const { return edges(k) * kArea; }

    // Packs 32 columns from `column`; what is beyond the matrix is zero.
    void pack(int64_t column, bf16* panel) const {
        for (int64_t i = 0; i < k; i += kEdge, panel += kArea) is_transposed ? pack_columns(column, i, panel) : pack_rows(column, i, panel);
    }
    // Packs all columns, panel after panel.
    const bf16* pack_all(bf16* panels) const {
        for (int64_t c = 0; c < n; c += kEdge) pack(c, panels + c / kEdge * panel_size());
        return panels;
    }

   private:
    void pack_rows(int64_t column, int64_t i, bf16* panel) const {
        const __m512i high_half = _mm512_set1_epi32(int(0xFFFF0000));
        for (int64_t p = i; p < i + kEdge; p += 2, panel += kEdge) {
            const bf16* row = data + p * stride + column;
            __m512i a = load_row(row, p < k ? n - column : 0), b = load_row(row + stride, p + 1 < k ? n - column : 0);
            _mm512_storeu_si512(panel, _mm512_or_si512(_mm512_andnot_si512(high_half, a), _mm512_slli_epi32(b, 16)));
            _mm512_storeu_si512(panel + kArea / 2, _mm512_or_si512(_mm512_srli_epi32(a, 16), _mm512_and_si512(high_half, b)));
        }
    }
    void pack_columns(int64_t column, int64_t i, bf16* panel) const {
        for (int64_t parity = 0; parity < 2; ++parity, panel += kArea / 2) {
            Vec pairs[kLanes];
            for (int64_t r = 0; r < kLanes; ++r) {
                int64_t c = column + 2 * r + parity;
                pairs[r] = (Vec)load_row(data + c * stride + i, c < n ? k - i : 0);
            }
            transpose(pairs);
            std::memcpy(panel, pairs, sizeof pairs);
        }
    }
};

inline void clear_sums() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

// Adds the product of 32 rows, `stride` apart, with a panel of so many steps; each step lies `ahead` of the last.
inline void add_product(const bf16* left, int64_t stride, int64_t ahead, const bf16* panel, int64_t steps) {
    for (int64_t i = 0; i < steps; ++i, left += ahead, panel += kArea) {
        _tile_loadd(4, left, stride * sizeof(bf16));
        _tile_loadd(6, panel, 64);
        _tile_loadd(7, panel + kArea / 2, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, left + kLanes * stride, stride * sizeof(bf16));
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

inline void load_sums(const Block& block) {
    _tile_loadd(0, block.rows[0], sizeof block.rows[0]);
    _tile_loadd(1, block.rows[0] + kLanes, sizeof block.rows[0]);
    _tile_loadd(2, block.rows[kLanes], sizeof block.rows[0]);
    _tile_loadd(3, block.rows[kLanes] + kLanes, sizeof block.rows[0]);
}
inline void store_sums(Block& block) {
    _tile_stored(0, block.rows[0], sizeof block.rows[0]);
    _tile_stored(1, block.rows[0] + kLanes, sizeof block.rows[0]);
    _tile_stored(2, block.rows[kLanes], sizeof block.rows[0]);
    _tile_stored(3, block.rows[kLanes] + kLanes, sizeof block.rows[0]);
}

// Columns 0 to 15 and 16 to 31 of a row of sums.
inline std::pair<Vec, Vec> in_order(const float* row) {
    Vec even = load(row), odd = load(row + kLanes);
    return {shuffle<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(even, odd),
            shuffle<8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31>(even, odd)};
}

// Calls f(column, a, b) with the columns of a block: a of rows 0 to 15, b of rows 16 to 31.
template <typename F>
inline void each_column(const Block& block, F f) {
    for (int64_t parity = 0; parity < 2; ++parity) {
        Vec above[kLanes], below[kLanes];
        for (int64_t r = 0; r < kLanes; ++r) {
            above[r] = load(block.rows[r] + parity * kLanes);
            below[r] = load(block.rows[kLanes + r] + parity * kLanes);
        }
        transpose(above);
        transpose(below);
        for (int64_t c = 0; c < kLanes; ++c) f(2 * c + parity, above[c], below[c]);
    }
}

}  // namespace

#endif
