// How the kernels are told which rows go through which adapter.
//
// Legend: I features in, O features out, R rank.

#pragma once

#include <cstdint>

extern "C" {

struct LoraSegment {
    int64_t start, stop, rank;
    const void *a, *b;  // (R, I), (O, R)
    float *da, *db;     // added to; null: not wanted
    double scaling;
};
}
