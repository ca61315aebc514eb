// Causal attention in bf16 by tiles, one task per sequence and key-value head, in blocks of 32 positions of one query head.
//
// Scores and sums are fp32; probabilities, and the gradients of scores, are rounded to bf16 before they multiply.

#pragma once

#include "attention.h"
#include "tiles.h"

#ifdef HAS_TILES

namespace {

struct AttentionRooms {
    Room keys, key_rows, values, left, left_out, probs, dscores, queries, douts, turned_probs, turned_dscores;
    std::vector<Block> dkeys, dvalues;
    std::vector<float> scores, dprobs;
};
inline AttentionRooms& attention_rooms() {
    thread_local AttentionRooms kept;
    return kept;
}

class TileTask {
   public:
    static bool fits(const Attention& s) { return s.key_dim % kEdge == 0 && s.value_dim % kEdge == 0 && are_tiles_allowed(); }

    // `index` counts key-value heads within sequences.
    TileTask(const Attention& shape, int64_t index) : s_(shape), room_(attention_rooms()) {
        int64_t sequence = index / shape.num_kv_heads;
        head_ = index % shape.num_kv_heads;
        start_ = shape.starts[sequence];
        length_ = shape.starts[sequence + 1] - start_;
        group_ = shape.num_heads / shape.num_kv_heads;
        width_ = edges(length_) * kEdge;
        room_.scores.resize(std::max<size_t>(room_.scores.size(), kEdge * width_));
        room_.dprobs.resize(std::max<size_t>(room_.dprobs.size(), kEdge * width_));
    }

    void forward(const bf16* q, const bf16* k, const bf16* v, bf16* out, float* sums) {
        Right keys = turned(k, s_.key_dim), values = upright(v, s_.value_dim);
        const bf16* key_panels = keys.pack_all(room_.keys.take(edges(length_) * keys.panel_size()));
        const bf16* value_panels = values.pack_all(room_.values.take(s_.value_dim * width_));
        bf16* probs = room_.probs.take(kEdge * width_);
        each_block([&](const Span& b, int64_t g) {
            score(left(q, s_.key_dim, b, g, room_.left), s_.key_dim, key_panels, b, room_.scores.data());
            for (int64_t r = 0; r < b.count; ++r) {
                float* row = room_.scores.data() + r * width_;
                float most = hide(row, b, r) * s_.scaling, total = powers(row, b, most), factor = 1.0f / total;
                for (int64_t j = b.key; j < b.end; j += kLanes) store(probs + r * width_ + j, load(row + j) * factor);
                sums[row_of(b.first + r, g)] = most + std::log(total);
            }
            mix(probs, value_panels, values, b, g, out);
        });
    }

    void backward(const bf16* q, const bf16* k, const bf16* v, const float* sums, const bf16* dout, bf16* dq, bf16* dk, bf16* dv) {
        Right keys = turned(k, s_.key_dim), key_rows = upright(k, s_.key_dim), values = turned(v, s_.value_dim);
        const bf16* key_panels = keys.pack_all(room_.keys.take(edges(length_) * keys.panel_size()));
        const bf16* key_row_panels = key_rows.pack_all(room_.key_rows.take(s_.key_dim * width_));
        const bf16* value_panels = values.pack_all(room_.values.take(edges(length_) * values.panel_size()));
        bf16* dscores = room_.dscores.take(kEdge * width_);
        bf16 *queries = room_.queries.take(group_ * kEdge * s_.key_dim), *douts = room_.douts.take(group_ * kEdge * s_.value_dim);
        bf16 *turned_probs = room_.turned_probs.take(group_ * kEdge * width_), *turned_dscores = room_.turned_dscores.take(group_ * kEdge * width_);
        room_.dkeys.assign(width_ * s_.key_dim / kArea, Block{});
        room_.dvalues.assign(width_ * s_.value_dim / kArea, Block{});
        each_block([&](const Span& b, int64_t g) {
            Left own = left(q, s_.key_dim, b, g, room_.left), own_out = left(dout, s_.value_dim, b, g, room_.left_out);
            score(own, s_.key_dim, key_panels, b, room_.scores.data());
            score(own_out, s_.value_dim, value_panels, b, room_.dprobs.data());
            for (int64_t r = 0; r < kEdge; ++r) {
                float *p = room_.scores.data() + r * width_, *d = room_.dprobs.data() + r * width_;
                if (r < b.count) {
                    hide(p, b, r);
                    powers(p, b, sums[row_of(b.first + r, g)]);
                    float mean = dot(p + b.key, d + b.key, b.end - b.key);
                    for (int64_t j = b.key; j < b.end; j += kLanes) store(d + j, load(p + j) * (load(d + j) - mean) * s_.scaling);
                } else {
                    std::fill(p + b.key, p + b.end, 0.0f);
                    std::fill(d + b.key, d + b.end, 0.0f);
                }
                put(d + b.key, b.end - b.key, dscores + r * width_ + b.key);
            }
            mix(dscores, key_row_panels, key_rows, b, g, dq);
            turn(room_.scores.data(), b, g, turned_probs);
            turn(room_.dprobs.data(), b, g, turned_dscores);
            pack_step(own, s_.key_dim, g, queries);
            pack_step(own_out, s_.value_dim, g, douts);
            if (g < group_ - 1) return;
            add_mixed(turned_dscores, queries, s_.key_dim, b, room_.dkeys);
            add_mixed(turned_probs, douts, s_.value_dim, b, room_.dvalues);
        });
        scatter(room_.dkeys, s_.key_dim, dk);
        scatter(room_.dvalues, s_.value_dim, dv);
    }

   private:
    // Positions [first, first + count) and the keys [key, end) that some of them see, whole blocks.
    struct Span {
        int64_t first, count, key, end;
    };

    template <typename F>
    void each_block(F f) const {
        Tiles tiles;
        for (int64_t first = 0; first < length_; first += kEdge)
            for (int64_t g = 0; g < group_; ++g)
                f(Span{first, std::min(kEdge, length_ - first), seen_from(first) / kEdge * kEdge, first + kEdge}, g);
    }

    int64_t seen_from(int64_t position) const { return s_.window ? std::max<int64_t>(0, position - s_.window + 1) : 0; }
    int64_t row_of(int64_t position, int64_t g) const { return (start_ + position) * s_.num_heads + head_ * group_ + g; }
    int64_t kv_at(int64_t position, int64_t dim) const { return ((start_ + position) * s_.num_kv_heads + head_) * dim; }
    Right turned(const bf16* p, int64_t dim) const { return {p + kv_at(0, dim), dim, length_, true, s_.num_kv_heads * dim}; }
    Right upright(const bf16* p, int64_t dim) const { return {p + kv_at(0, dim), length_, dim, false, s_.num_kv_heads * dim}; }
    Left left(const bf16* p, int64_t dim, const Span& b, int64_t g, Room& room) const {
        return {p + row_of(b.first, g) * dim, dim, s_.num_heads * dim, b.count, room};
    }

    // scores (count, width) of the keys of a block, from panels of one key block each.
    void score(const Left& rows, int64_t dim, const bf16* panels, const Span& b, float* scores) const {
        for (int64_t j = b.key; j < b.end; j += kEdge) {
            Block sums;
            clear_sums();
            add_product(rows.data, rows.stride, kEdge, panels + j * dim, dim / kEdge);
            store_sums(sums);
            for (int64_t r = 0; r < b.count; ++r) {
                auto [low, high] = in_order(sums.rows[r]);
                store(scores + r * width_ + j, low);
                store(scores + r * width_ + j + kLanes, high);
            }
        }
    }

    // Makes the scores of keys that row r of a block does not see -inf, and returns the largest.
    float hide(float* row, const Span& b, int64_t r) const {
        Vec hidden = Vec{} - INFINITY, most = hidden;
        IVec key = IVec{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + int32_t(b.key);
        int32_t from = int32_t(seen_from(b.first + r)), last = int32_t(b.first + r);
        for (int64_t j = b.key; j < b.end; j += kLanes, key += int32_t(kLanes)) {
            Vec scores = (key >= from) & (key <= last) ? load(row + j) : hidden;
            store(row + j, scores);
            most = most > scores ? most : scores;
        }
        return _mm512_reduce_max_ps((__m512)most);
    }

    // exp(scaling · score - shift), zero where the score is -inf; returns the sum.
    float powers(float* row, const Span& b, float shift) const {
        Vec total = {};
        for (int64_t j = b.key; j < b.end; j += kLanes) {
            Vec scores = load(row + j), power = exponential(scores * s_.scaling - shift);
            power = scores == -INFINITY ? Vec{} : power;
            store(row + j, power);
            total += power;
        }
        return across(total);
    }

    // Rows of `target` (positions, heads, n) from weights (32, width) of keys and panels of what is mixed.
    void mix(const bf16* weights, const bf16* panels, const Right& mixed, const Span& b, int64_t g, bf16* target) const {
        for (int64_t c = 0; c < mixed.n; c += kEdge) {
            Block sums;
            clear_sums();
            add_product(weights + b.key, width_, kEdge, panels + c / kEdge * mixed.panel_size() + b.key * kEdge, (b.end - b.key) / kEdge);
            store_sums(sums);
            for (int64_t r = 0; r < b.count; ++r) {
                auto [low, high] = in_order(sums.rows[r]);
                store_row(target + row_of(b.first + r, g) * mixed.n + c, low, high);
            }
        }
    }

    // Step g of each key block of `to` (width / 32, group, 32 keys, 32 rows) from weights (32 rows, width).
    void turn(const float* weights, const Span& b, int64_t g, bf16* to) const {
        for (int64_t j = b.key; j < b.end; j += kLanes) {
            Vec above[kLanes], below[kLanes];
            for (int64_t r = 0; r < kLanes; ++r) {
                above[r] = load(weights + r * width_ + j);
                below[r] = load(weights + (kLanes + r) * width_ + j);
            }
            transpose(above);
            transpose(below);
            bf16* block = to + (j / kEdge * group_ + g) * kArea + j % kEdge * kEdge;
            for (int64_t i = 0; i < kLanes; ++i) store_row(block + i * kEdge, above[i], below[i]);
        }
    }

    // Step g of the panels of `to` (dim / 32, group), from 32 rows.
    void pack_step(const Left& rows, int64_t dim, int64_t g, bf16* to) const {
        for (int64_t c = 0; c < dim; c += kEdge) Right{rows.data, kEdge, dim, false, rows.stride}.pack(c, to + (c / kEdge * group_ + g) * kArea);
    }

    // blocks (width / 32, dim / 32) += what the rows of a block and their group add to the keys they see.
    void add_mixed(const bf16* weights, const bf16* panels, int64_t dim, const Span& b, std::vector<Block>& blocks) const {
        for (int64_t j = b.key / kEdge; j < b.end / kEdge; ++j)
            for (int64_t c = 0; c < dim / kEdge; ++c) {
                Block& sums = blocks[j * (dim / kEdge) + c];
                load_sums(sums);
                add_product(weights + j * group_ * kArea, kEdge, kArea, panels + c * group_ * kArea, group_);
                store_sums(sums);
            }
    }

    void scatter(const std::vector<Block>& blocks, int64_t dim, bf16* target) const {
        for (int64_t position = 0; position < length_; ++position)
            for (int64_t c = 0; c < dim; c += kEdge) {
                auto [low, high] = in_order(blocks[(position / kEdge * dim + c) / kEdge].rows[position % kEdge]);
                store_row(target + kv_at(position, dim) + c, low, high);
            }
    }

    const Attention& s_;
    AttentionRooms& room_;
    int64_t head_, start_, length_, group_, width_;
};

}  // namespace

#endif
