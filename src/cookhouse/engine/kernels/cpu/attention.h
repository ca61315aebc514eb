// The sequences of a pass and the heads of a layer, as the kernels of attention are told of them.

#pragma once

#include <cstdint>

extern "C" {

struct Attention {
    int64_t num_sequences, num_heads, num_kv_heads, key_dim, value_dim;
    int64_t window;          // latest keys that a query sees; 0: all
    const int64_t* starts;   // (sequences + 1): first position of each, and the end
    float scaling;
};
}
