// What a pass is told: a model, and the rows to compute. Mirrored in sampler/native/kernel.py.
//
// Legend: N rows, B rows whose logits are wanted, I features in, O features out, R rank, K key-value heads, D features per
// head, V vocabulary.

#pragma once

#include <cstdint>

extern "C" {

struct Linear {
    const void* weight;  // (O, I), or packed
    const float* bias;   // (O) or null
    int64_t out, in;
    int64_t is_packed;   // (O / 16, I, 16), or in bf16 (O / 16, I / 2, 16, 2): see `packs_bf16`
};

struct Layer {
    const float* input_norm;      // (hidden)
    const float* attention_norm;  // (hidden), before the MLP
    const float* q_norm;          // (D) or null
    const float* k_norm;          // (D) or null
    Linear q, k, v, o, gate, up, down;
    void* keys;    // (blocks, K, D, 16 positions)
    void* values;  // (blocks, K, 16 positions, D)
    int64_t window;  // latest keys that a query sees; 0: all
};

struct Model {
    int64_t num_layers, hidden, num_heads, num_kv_heads, head_dim;
    float norm_eps, scaling;
    const Layer* layers;
    const float* final_norm;
    Linear head;
    const void* embedding;  // (V, hidden)
};

// Adapter of one linear layer: y += scaling · B A x. A null `a` is no adapter. See `fills_ranks`.
struct Lora {
    const void* a;  // (R, I), or packed
    const void* b;  // (O, R), or packed
    int64_t rank;
    float scaling;
    int64_t is_packed;  // as of Linear, both
};

struct Batch {
    int64_t num_rows;
    const int64_t* tokens;     // (N)
    const int64_t* positions;  // (N)
    const float* cos;          // (N, D)
    const float* sin;          // (N, D)
    const int64_t* blocks;     // block tables of all sequences, end to end
    const int64_t* first_block;  // (N): where the table of a row's sequence starts
    int64_t num_segments;
    const int64_t* segment_starts;  // (segments + 1): rows of one adapter are neighbors
    const Lora* loras;              // (segments, layers · 7 + 1): q k v o gate up down of each layer, then the head
    int64_t num_outputs;
    const int64_t* outputs;  // (B): ascending rows
    float* logits;           // (B, V), written
    float* hidden;           // (N, hidden) or null; written
};
}
