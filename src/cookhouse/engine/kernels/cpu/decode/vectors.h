// Vectors of 16 numbers in fp32, and what is stored of them in bf16. Portable: GCC's vectors become whatever -march=native
// has.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace {

constexpr int kLanes = 16;
typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef int32_t IVec __attribute__((vector_size(4 * kLanes)));
typedef uint32_t UVec __attribute__((vector_size(4 * kLanes)));
typedef uint16_t HVec __attribute__((vector_size(2 * kLanes)));

struct bf16 {
    uint16_t bits;
};

// What one register holds. Sums are kept in these: GCC keeps a vector that is larger in memory.
#ifdef __AVX512F__
constexpr int kRegister = kLanes;
constexpr int kSums = 24;  // vectors of sums that the registers hold, beside what is added to them
#else
constexpr int kRegister = 8;
constexpr int kSums = 6;
#endif
constexpr int kRegisters = kLanes / kRegister;
typedef float Register __attribute__((vector_size(4 * kRegister)));
typedef uint32_t URegister __attribute__((vector_size(4 * kRegister)));
typedef uint16_t HRegister __attribute__((vector_size(2 * kRegister)));

// The lanes L of a and b, where 16 and more are those of b. GCC has `__builtin_shufflevector` from 12 on only.
template <int... L>
inline Vec shuffle(Vec a, Vec b) {
#ifdef __clang__
    return __builtin_shufflevector(a, b, L...);
#else
    return __builtin_shuffle(a, b, IVec{L...});
#endif
}

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
#ifdef __AVX512F__  // GCC widens by halves, and puts these together
    UVec wide = (UVec)_mm512_cvtepu16_epi32((__m256i)half);
#else
    UVec wide = __builtin_convertvector(half, UVec);
#endif
    return (Vec)(wide << 16);
}
inline Register load_register(const float* p) {
    Register v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline Register load_register(const bf16* p) {
#ifdef __AVX512F__
    return load(p);
#else
    HRegister half;
    std::memcpy(&half, p, sizeof half);
    return (Register)(__builtin_convertvector(half, URegister) << 16);
#endif
}
inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }
inline void store1(float* p, float value) { *p = value; }
inline void store1(bf16* p, float value) {  // round to nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    p->bits = uint16_t((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
inline void store(bf16* p, Vec v) {
#ifdef __AVX512BF16__
    __m256bh half = _mm512_cvtneps_pbh((__m512)v);
    std::memcpy(p, &half, sizeof half);
#else
    UVec bits = (UVec)v;
    HVec half = __builtin_convertvector((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, HVec);
    std::memcpy(p, &half, sizeof half);
#endif
}
// What becomes of a number that is stored in bf16.
inline Vec round_off(Vec v) {
    bf16 stored[kLanes];
    store(stored, v);
    return load(stored);
}
inline float round_off(float value) {
    bf16 stored;
    store1(&stored, value);
    return load1(&stored);
}

// Numbers so placed that none of their vectors straddles two lines of the processor's cache.
template <typename T>
class Buffer {
   public:
    explicit Buffer(int64_t size) : lines_(new Line[(size * sizeof(T) + sizeof(Line) - 1) / sizeof(Line)]) {}
    T* data() { return reinterpret_cast<T*>(lines_.get()); }
    T& operator[](int64_t i) { return data()[i]; }

   private:
    struct alignas(4 * kLanes) Line {
        char bytes[4 * kLanes];
    };
    std::unique_ptr<Line[]> lines_;  // unlike a vector's, not set to zero
};

typedef std::make_integer_sequence<int, kLanes> Lanes;

// Lanes H apart are added: those without bit H hold sums of a, the others of b.
template <int H, int... L>
inline Vec fold(Vec a, Vec b, std::integer_sequence<int, L...>) {
    return shuffle<((L & H) ? L + kLanes : L)...>(a, b) + shuffle<((L & H) ? (L ^ H) + kLanes : (L ^ H))...>(a, b);
}
// The sums of 16 vectors, each in the order of `sum`.
inline Vec sums(Vec v[kLanes]) {
    for (int i = 0; i < 8; ++i) v[i] = fold<8>(v[i], v[i + 8], Lanes());
    for (int i = 0; i < 4; ++i) v[i] = fold<4>(v[i], v[i + 4], Lanes());
    for (int i = 0; i < 2; ++i) v[i] = fold<2>(v[i], v[i + 2], Lanes());
    return fold<1>(v[0], v[1], Lanes());
}
inline float sum(Vec v) {
    v = fold<8>(v, v, Lanes());
    v = fold<4>(v, v, Lanes());
    v = fold<2>(v, v, Lanes());
    return fold<1>(v, v, Lanes())[0];
}

// e to the x, to 2e-7 of itself, for x up to 88; below -87 it stays where it is there, near nothing. Coefficients are those
// of Cephes (https://www.netlib.org/cephes/), and the vectors of libm are not to be had under these flags.
inline Vec exp(Vec x) {
    x = x < -87.0f ? Vec{} - 87.0f : x;
    x = x > 88.0f ? Vec{} + 88.0f : x;
    Vec half = x < 0.0f ? Vec{} - 0.5f : Vec{} + 0.5f;
    IVec n = __builtin_convertvector(x * 1.44269504f + half, IVec);
    Vec r = x - __builtin_convertvector(n, Vec) * 0.693147181f;
    Vec p = Vec{} + 1.9875691500e-4f;
    for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) p = p * r + c;
    return (p * r * r + r + 1.0f) * (Vec)((n + 127) << 23);
}

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

}  // namespace
