// Where the results of products go.
//
// Legend: O features out.

#pragma once

#include "vectors.h"

namespace {

// Products go to a target. It says what the sums of a row begin with (`before`, of `column` and on; null: nothing), and
// takes `count` of them. This one is for fp32: y = or += scale · t + bias.
struct Finish {
    const float* bias;  // (O) or null
    float scale;
    bool add;
    float* y;  // (rows, O)
    int64_t out;

    Finish from(int64_t row) const { return {bias, scale, add, y + row * out, out}; }
    const float* before(int64_t, int64_t) const { return nullptr; }
    void operator()(const float* t, int64_t count, int64_t row, int64_t column) const {
        float* target = y + row * out;
        for (int64_t c = 0; c < count; ++c) {
            float value = scale * t[c] + (bias ? bias[column + c] : 0.0f);
            target[column + c] = add ? target[column + c] + value : value;
        }
    }
};

// For bf16. A product with an adapter is one sum: that over the features of x, then that over the adapter's rank. It is
// rounded once, with its bias, wherever it is computed: as one token is sampled, as a prompt is read, and in training.
struct Round {
    const float* sums;  // (rows, O): what the sums begin with; null: nothing
    const float* bias;  // (O) or null
    float scale;        // of what is rounded
    bf16* rounded;      // (rows, O), or null
    float* wide;        // (rows, O), or null
    bool add;           // to `wide`, once rounded
    int64_t out;

    Round from(int64_t row) const {
        auto at = [&](auto* p) { return p ? p + row * out : p; };
        return {at(sums), bias, scale, at(rounded), at(wide), add, out};
    }
    const float* before(int64_t row, int64_t column) const { return sums ? sums + row * out + column : nullptr; }
    void operator()(const float* t, int64_t count, int64_t row, int64_t column) const {
        int64_t at = row * out + column, c = 0;
        for (; c + kLanes <= count; c += kLanes) {
            Vec value = load(t + c);
            if (bias) value += load(bias + column + c);
            if (rounded) store(rounded + at + c, value * scale);
            if (wide) store(wide + at + c, add ? load(wide + at + c) + round_off(value) : value);
        }
        for (; c < count; ++c) {
            float value = t[c] + (bias ? bias[column + c] : 0.0f);
            if (rounded) store1(rounded + at + c, value * scale);
            if (wide) wide[at + c] = add ? wide[at + c] + round_off(value) : value;
        }
    }
};

}  // namespace
