// What the kernels of training share: fp32 and bf16 numbers, vectors of 16 lanes, and a small matrix product.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

// The logarithm under its first name in glibc, which is the same function: libraries of a wheel then load on older systems.
#if defined(__x86_64__) && defined(__GLIBC__)
__asm__(".symver log,log@GLIBC_2.2.5");
#endif

namespace {

constexpr int64_t kLanes = 16;
typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef int32_t IVec __attribute__((vector_size(4 * kLanes)));
typedef uint32_t UVec __attribute__((vector_size(4 * kLanes)));
typedef uint16_t HVec __attribute__((vector_size(2 * kLanes)));

struct bf16 {
    uint16_t bits;
};

// The lanes L of a and b, where 16 and more are those of b. GCC has `__builtin_shufflevector` from 12 on only.
template <int... L>
inline Vec shuffle(Vec a, Vec b) {
#ifdef __clang__
    return __builtin_shufflevector(a, b, L...);
#else
    return __builtin_shuffle(a, b, IVec{L...});
#endif
}

inline int64_t padded(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

inline Vec load(const float* p) {
    Vec v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }
inline Vec load(const bf16* p) {
#ifdef __AVX512F__
    return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16);
#else
    HVec half;
    std::memcpy(&half, p, sizeof half);
    return (Vec)(__builtin_convertvector(half, UVec) << 16);
#endif
}
inline void store(bf16* p, Vec v) {  // round to nearest, ties to even
#ifdef __AVX512BF16__
    __m256bh half = _mm512_cvtneps_pbh((__m512)v);
    std::memcpy(p, &half, sizeof half);
#else
    UVec bits = (UVec)v;
    HVec half = __builtin_convertvector((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, HVec);
    std::memcpy(p, &half, sizeof half);
#endif
}
// The first n numbers of a vector; the others read as zero.
template <typename T>
inline Vec load_part(const T* p, int64_t n) {
    T whole[kLanes] = {};
    std::memcpy(whole, p, n * sizeof(T));
    return load(whole);
}
template <typename T>
inline void store_part(T* p, int64_t n, Vec v) {
    T whole[kLanes];
    store(whole, v);
    std::memcpy(p, whole, n * sizeof(T));
}
inline float widen(float value) { return value; }
inline float widen(bf16 value) {
    uint32_t bits = uint32_t(value.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, 4);
    return wide;
}
inline void narrow(float value, float* p) { *p = value; }
inline void narrow(float value, bf16* p) {  // round to nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    p->bits = uint16_t((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// n numbers as fp32: where they are, or copied to `buffer`.
inline const float* wide(const float* p, int64_t, float*) { return p; }
inline const float* wide(const bf16* p, int64_t n, float* buffer) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(buffer + i, load(p + i));
    for (; i < n; ++i) buffer[i] = widen(p[i]);
    return buffer;
}

// Where to put n fp32 numbers on their way to `p`; `put` then brings them there.
inline float* room(float* p, float*) { return p; }
inline float* room(bf16*, float* buffer) { return buffer; }
inline void put(const float* from, int64_t n, float* p) {
    if (from != p) std::memcpy(p, from, n * sizeof(float));
}
inline void put(const float* from, int64_t n, bf16* p) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(p + i, load(from + i));
    for (; i < n; ++i) narrow(from[i], p + i);
}

inline float across(Vec v) {
    v += shuffle<8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7>(v, v);
    v += shuffle<4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11>(v, v);
    return (v[0] + v[1]) + (v[2] + v[3]);
}

// Lanes are added in an order that only n decides, so that the same numbers give the same bits at any address.
inline float dot(const float* a, const float* b, int64_t n) {
    Vec total = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) total += load(a + i) * load(b + i);
    float sum = across(total);
    for (; i < n; ++i) sum += a[i] * b[i];
    return sum;
}

inline float sum(const float* a, int64_t n) {
    Vec total = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) total += load(a + i);
    float result = across(total);
    for (; i < n; ++i) result += a[i];
    return result;
}

inline float largest(const float* a, int64_t n) {
    float result = a[0];
    int64_t i = 0;
    if (n >= kLanes) {
        Vec most = load(a);
        for (i = kLanes; i + kLanes <= n; i += kLanes) {
            Vec next = load(a + i);
            most = most > next ? most : next;
        }
        for (int64_t lane = 0; lane < kLanes; ++lane) result = std::max(result, most[lane]);
    }
    for (; i < n; ++i) result = std::max(result, a[i]);
    return result;
}

// To 1e-7 relative, by exp(x) = 2^n exp(r), |r| <= ln 2 / 2, and the polynomial of Cephes; below 1e-37 it is some tiny
// number, above 1e38 some huge one, and what is no number stays so.
inline Vec exponential(Vec x) {
    Vec bounded = x < -85.0f ? Vec{} - 85.0f : x;
    bounded = bounded > 88.0f ? Vec{} + 88.0f : bounded;
    Vec turns = bounded * 1.44269504f;
    IVec n = __builtin_convertvector(turns + (turns < 0.0f ? Vec{} - 0.5f : Vec{} + 0.5f), IVec);
    Vec whole = __builtin_convertvector(n, Vec);
    Vec r = bounded - whole * 0.693359375f + whole * 2.12194440e-4f;
    Vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (Vec)((n + 127) << 23);
}

// y = exp(scale · x - shift)
inline void exponentials(const float* x, int64_t n, float scale, float shift, float* y) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(y + i, exponential(load(x + i) * scale - shift));
    if (i == n) return;
    Vec rest = {};
    std::memcpy(&rest, x + i, (n - i) * sizeof(float));
    rest = exponential(rest * scale - shift);
    std::memcpy(y + i, &rest, (n - i) * sizeof(float));
}

// Scratch memory of one thread, kept from call to call.
class Scratch {
   public:
    std::vector<float>& part(int64_t slot) { return parts_[slot]; }
    float* take(int64_t slot, int64_t n) {
        if (int64_t(parts_[slot].size()) < n) parts_[slot].resize(n);
        return parts_[slot].data();
    }
    float* zeros(int64_t slot, int64_t n) {
        float* p = take(slot, n);
        std::memset(p, 0, n * sizeof(float));
        return p;
    }

   private:
    std::vector<float> parts_[10];
};

inline Scratch& scratch() {
    thread_local Scratch kept;
    return kept;
}

struct Matrix {
    const float* data;
    int64_t row, column;  // distance of neighbors down and across
};

// What one register holds. Sums are kept in these: GCC keeps a vector that is larger in memory.
#ifdef __AVX512F__
constexpr int kRegister = kLanes;
constexpr int kSums = 24;  // vectors of sums that the registers hold, beside what is added to them
#else
constexpr int kRegister = 8;
constexpr int kSums = 6;
#endif
typedef float Register __attribute__((vector_size(4 * kRegister)));

// c (MR, NR vectors) = or += a (MR, k) · b (k, NR vectors).
template <int MR, int NR>
inline void tile(int64_t k, Matrix a, const float* b, int64_t b_row, float* c, int64_t c_row, bool add) {
    constexpr int kColumns = NR * kLanes / kRegister;
    Register acc[MR][kColumns] = {};
    if (add)
        for (int r = 0; r < MR; ++r) std::memcpy(acc[r], c + r * c_row, sizeof acc[r]);
    for (int64_t p = 0; p < k; ++p) {
        Register bv[kColumns];
#pragma GCC unroll 8  // else the sums are kept in memory
        for (int n = 0; n < kColumns; ++n) std::memcpy(&bv[n], b + p * b_row + n * kRegister, sizeof bv[n]);
#pragma GCC unroll 8
        for (int r = 0; r < MR; ++r) {
            float av = a.data[r * a.row + p * a.column];
#pragma GCC unroll 8
            for (int n = 0; n < kColumns; ++n) acc[r][n] += av * bv[n];
        }
    }
    for (int r = 0; r < MR; ++r) std::memcpy(c + r * c_row, acc[r], sizeof acc[r]);
}

template <int NR>
inline void panel(int64_t m, int64_t k, Matrix a, const float* b, int64_t b_row, float* c, int64_t c_row, bool add) {
    int64_t r = 0;
    auto at = [&](int64_t row) { return Matrix{a.data + row * a.row, a.row, a.column}; };
    constexpr int kRows = std::min(6, kSums / NR);
    for (; r + kRows <= m; r += kRows) tile<kRows, NR>(k, at(r), b, b_row, c + r * c_row, c_row, add);
    if constexpr (kRows > 2)
        for (; r + 2 <= m; r += 2) tile<2, NR>(k, at(r), b, b_row, c + r * c_row, c_row, add);
    for (; r < m; ++r) tile<1, NR>(k, at(r), b, b_row, c + r * c_row, c_row, add);
}

// c (m, n) = or += a (m, k) · b (k, n). Rows of b and c have room for n rounded up to whole vectors, which are computed.
inline void product(int64_t m, int64_t n, int64_t k, Matrix a, const float* b, int64_t b_row, float* c, int64_t c_row, bool add) {
    int64_t j = 0;
    if constexpr (kSums >= 6 * 4)
        for (; j + 4 * kLanes <= padded(n); j += 4 * kLanes) panel<4>(m, k, a, b + j, b_row, c + j, c_row, add);
    for (; j + 2 * kLanes <= padded(n); j += 2 * kLanes) panel<2>(m, k, a, b + j, b_row, c + j, c_row, add);
    for (; j < n; j += kLanes) panel<1>(m, k, a, b + j, b_row, c + j, c_row, add);
}

// Rows of n numbers, `stride` apart, as fp32 rows padded(n) apart with zeros behind; where they are if they are so already.
template <typename T>
const float* rows_of(const T* p, int64_t stride, int64_t rows, int64_t n, float* buffer) {
    if (sizeof(T) == 4 && stride == n && padded(n) == n) return reinterpret_cast<const float*>(p);
    for (int64_t r = 0; r < rows; ++r) {
        float* target = buffer + r * padded(n);
        const float* row = wide(p + r * stride, n, target);
        if (row != target) std::memcpy(target, row, n * sizeof(float));
        std::fill(target + n, target + padded(n), 0.0f);
    }
    return buffer;
}

// Transposes 16 rows of 16 by swapping ever smaller blocks across the diagonal.
inline void transpose(Vec v[16]) {
    for (int i = 0; i < 16; ++i) {
        if (i & 8) continue;
        Vec upper = v[i], lower = v[i + 8];
        v[i] = shuffle<0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23>(upper, lower);
        v[i + 8] = shuffle<8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31>(upper, lower);
    }
    for (int i = 0; i < 16; ++i) {
        if (i & 4) continue;
        Vec upper = v[i], lower = v[i + 4];
        v[i] = shuffle<0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27>(upper, lower);
        v[i + 4] = shuffle<4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31>(upper, lower);
    }
    for (int i = 0; i < 16; ++i) {
        if (i & 2) continue;
        Vec upper = v[i], lower = v[i + 2];
        v[i] = shuffle<0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29>(upper, lower);
        v[i + 2] = shuffle<2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31>(upper, lower);
    }
    for (int i = 0; i < 16; ++i) {
        if (i & 1) continue;
        Vec upper = v[i], lower = v[i + 1];
        v[i] = shuffle<0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30>(upper, lower);
        v[i + 1] = shuffle<1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31>(upper, lower);
    }
}

// The transposed of (rows, n), `stride` apart: n rows of padded(rows) with zeros behind.
template <typename T>
const float* columns_of(const T* p, int64_t stride, int64_t rows, int64_t n, float* buffer) {
    int64_t width = padded(rows);
    for (int64_t start = 0; start < rows; start += kLanes) {
        int64_t count = std::min(kLanes, rows - start), i = 0;
        for (; count == kLanes && i + kLanes <= n; i += kLanes) {
            Vec block[kLanes];
            float row[kLanes];
            for (int64_t r = 0; r < kLanes; ++r) block[r] = load(wide(p + (start + r) * stride + i, kLanes, row));
            transpose(block);
            for (int64_t c = 0; c < kLanes; ++c) store(buffer + (i + c) * width + start, block[c]);
        }
        for (; i < n; ++i) {
            float* target = buffer + i * width + start;
            for (int64_t r = 0; r < count; ++r) target[r] = widen(p[(start + r) * stride + i]);
            std::fill(target + count, target + kLanes, 0.0f);
        }
    }
    return buffer;
}

}  // namespace
