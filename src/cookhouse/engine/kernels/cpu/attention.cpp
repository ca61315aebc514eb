// Causal attention over sequences laid end to end, forward and backward, one task per sequence and key-value head.
//
// Legend: N packed positions, H query heads, K key-value heads, G query heads per key-value head. Within a block of
// positions the rows are position-major: (position, G).

#include "attention_tiles.h"

namespace {

constexpr int64_t kBlock = 32;

template <typename T>
class Task {
   public:
    // `index` counts key-value heads within sequences.
    Task(const Attention& shape, int64_t index) : s_(shape) {
        int64_t sequence = index / shape.num_kv_heads;
        head_ = index % shape.num_kv_heads;
        start_ = shape.starts[sequence];
        length_ = shape.starts[sequence + 1] - start_;
        group_ = shape.num_heads / shape.num_kv_heads;
        width_ = padded(length_);
    }

    void forward(const T* q, const T* k, const T* v, T* out, float* sums) {
        Scratch& memory = scratch();
        const float* keys = columns_of(at_kv(k, s_.key_dim), kv_stride(s_.key_dim), length_, s_.key_dim, memory.take(0, width_ * s_.key_dim));
        const float* values = rows_of(at_kv(v, s_.value_dim), kv_stride(s_.value_dim), length_, s_.value_dim, memory.take(1, length_ * padded(s_.value_dim)));
        int64_t rows = kBlock * group_;
        float *queries = memory.take(2, rows * padded(s_.key_dim)), *scores = memory.take(3, rows * width_), *mixed = memory.take(4, rows * padded(s_.value_dim));
        each_block([&](int64_t first, int64_t last, int64_t key) {
            gather(q, s_.key_dim, first, last, queries);
            score(queries, keys, first, last, key, scores);
            int64_t count = (last - first) * group_;
            for (int64_t r = 0; r < count; ++r) {
                int64_t position = first + r / group_;
                sums[sum_index(position, r % group_)] = softmax(scores + r * width_, seen_from(position), position + 1, key, last);
            }
            product(count, s_.value_dim, last - key, {scores + key, width_, 1}, values + key * padded(s_.value_dim), padded(s_.value_dim), mixed, padded(s_.value_dim), false);
            scatter(mixed, s_.value_dim, first, last, out);
        });
    }

    void backward(const T* q, const T* k, const T* v, const float* sums, const T* dout, T* dq, T* dk, T* dv) {
        Scratch& memory = scratch();
        int64_t wide_key = padded(s_.key_dim), wide_value = padded(s_.value_dim), rows = kBlock * group_;
        const T *own_k = at_kv(k, s_.key_dim), *own_v = at_kv(v, s_.value_dim);
        const float* keys = columns_of(own_k, kv_stride(s_.key_dim), length_, s_.key_dim, memory.take(0, width_ * s_.key_dim));
        const float* key_rows = rows_of(own_k, kv_stride(s_.key_dim), length_, s_.key_dim, memory.take(1, length_ * wide_key));
        const float* values = columns_of(own_v, kv_stride(s_.value_dim), length_, s_.value_dim, memory.take(2, width_ * s_.value_dim));
        float *dkeys = memory.zeros(3, length_ * wide_key), *dvalues = memory.zeros(4, length_ * wide_value);
        float *queries = memory.take(5, rows * wide_key), *douts = memory.take(6, rows * wide_value);
        float *probs = memory.take(7, rows * width_), *dscores = memory.take(8, rows * width_), *dqueries = memory.take(9, rows * wide_key);
        each_block([&](int64_t first, int64_t last, int64_t key) {
            int64_t count = (last - first) * group_, num_keys = last - key;
            gather(q, s_.key_dim, first, last, queries);
            gather(dout, s_.value_dim, first, last, douts);
            score(queries, keys, first, last, key, probs);
            product(count, num_keys, s_.value_dim, {douts, wide_value, 1}, values + key, width_, dscores + key, width_, false);
            for (int64_t r = 0; r < count; ++r) {
                int64_t position = first + r / group_;
                float *p = probs + r * width_, *d = dscores + r * width_;
                powers(p, seen_from(position), position + 1, key, last, sums[sum_index(position, r % group_)]);
                float mean = dot(p + key, d + key, num_keys);
                for (int64_t j = key; j < last; ++j) d[j] = p[j] * (d[j] - mean) * s_.scaling;
            }
            product(num_keys, s_.value_dim, count, {probs + key, 1, width_}, douts, wide_value, dvalues + key * wide_value, wide_value, true);
            product(num_keys, s_.key_dim, count, {dscores + key, 1, width_}, queries, wide_key, dkeys + key * wide_key, wide_key, true);
            product(count, s_.key_dim, num_keys, {dscores + key, width_, 1}, key_rows + key * wide_key, wide_key, dqueries, wide_key, false);
            scatter(dqueries, s_.key_dim, first, last, dq);
        });
        for (int64_t j = 0; j < length_; ++j) {
            put(dkeys + j * wide_key, s_.key_dim, const_cast<T*>(at_kv(dk, s_.key_dim)) + j * kv_stride(s_.key_dim));
            put(dvalues + j * wide_value, s_.value_dim, const_cast<T*>(at_kv(dv, s_.value_dim)) + j * kv_stride(s_.value_dim));
        }
    }

   private:
    // Calls f(first, last, key): positions [first, last), which see keys from `key`, a multiple of the lanes.
    template <typename F>
    void each_block(F f) const {
        for (int64_t first = 0; first < length_; first += kBlock)
            f(first, std::min(first + kBlock, length_), seen_from(first) / kLanes * kLanes);
    }

    int64_t seen_from(int64_t position) const { return s_.window ? std::max<int64_t>(0, position - s_.window + 1) : 0; }
    int64_t kv_stride(int64_t dim) const { return s_.num_kv_heads * dim; }
    const T* at_kv(const T* p, int64_t dim) const { return p + (start_ * s_.num_kv_heads + head_) * dim; }
    int64_t row_of(int64_t position) const { return (start_ + position) * s_.num_heads + head_ * group_; }
    int64_t sum_index(int64_t position, int64_t g) const { return row_of(position) + g; }

    void gather(const T* p, int64_t dim, int64_t first, int64_t last, float* rows) const {
        for (int64_t position = first; position < last; ++position, rows += group_ * padded(dim))
            for (int64_t g = 0; g < group_; ++g) {
                float* target = rows + g * padded(dim);
                const float* row = wide(p + (row_of(position) + g) * dim, dim, target);
                if (row != target) std::memcpy(target, row, dim * sizeof(float));
                std::fill(target + dim, target + padded(dim), 0.0f);
            }
    }

    void scatter(const float* rows, int64_t dim, int64_t first, int64_t last, T* p) const {
        for (int64_t position = first; position < last; ++position)
            for (int64_t g = 0; g < group_; ++g, rows += padded(dim)) put(rows, dim, p + (row_of(position) + g) * dim);
    }

    void score(const float* queries, const float* keys, int64_t first, int64_t last, int64_t key, float* scores) const {
        product((last - first) * group_, last - key, s_.key_dim, {queries, padded(s_.key_dim), 1}, keys + key, width_, scores + key, width_, false);
    }

    // exp(scaling · score - shift) of the keys [from, to), zero for the rest of [key, last).
    void powers(float* row, int64_t from, int64_t to, int64_t key, int64_t last, float shift) const {
        exponentials(row + from, to - from, s_.scaling, shift, row + from);
        std::fill(row + key, row + from, 0.0f);
        std::fill(row + to, row + last, 0.0f);
    }

    // Turns scores into probabilities; returns the logarithm of the sum of their exponentials.
    float softmax(float* row, int64_t from, int64_t to, int64_t key, int64_t last) const {
        float most = largest(row + from, to - from) * s_.scaling;
        powers(row, from, to, key, last, most);
        float total = sum(row + from, to - from), factor = 1.0f / total;
        for (int64_t j = from; j < to; ++j) row[j] *= factor;
        return most + std::log(total);
    }

    const Attention& s_;
    int64_t head_, start_, length_, group_, width_;
};

template <typename F>
void each_task(const Attention& shape, F f) {
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < shape.num_sequences * shape.num_kv_heads; ++i) f(i);
}

}  // namespace

extern "C" void attention_fp32(const Attention* shape, const float* q, const float* k, const float* v, float* out, float* sums) {
    each_task(*shape, [&](int64_t i) { Task<float>(*shape, i).forward(q, k, v, out, sums); });
}

extern "C" void attention_backward_fp32(const Attention* shape, const float* q, const float* k, const float* v, const float* sums,
                                        const float* dout, float* dq, float* dk, float* dv) {
    each_task(*shape, [&](int64_t i) { Task<float>(*shape, i).backward(q, k, v, sums, dout, dq, dk, dv); });
}

extern "C" void attention_bf16(const Attention* shape, const bf16* q, const bf16* k, const bf16* v, bf16* out, float* sums) {
#ifdef HAS_TILES
    if (TileTask::fits(*shape)) return each_task(*shape, [&](int64_t i) { TileTask(*shape, i).forward(q, k, v, out, sums); });
#endif
    each_task(*shape, [&](int64_t i) { Task<bf16>(*shape, i).forward(q, k, v, out, sums); });
}

extern "C" void attention_backward_bf16(const Attention* shape, const bf16* q, const bf16* k, const bf16* v, const float* sums,
                                        const bf16* dout, bf16* dq, bf16* dk, bf16* dv) {
#ifdef HAS_TILES
    if (TileTask::fits(*shape))
        return each_task(*shape, [&](int64_t i) { TileTask(*shape, i).backward(q, k, v, sums, dout, dq, dk, dv); });
#endif
    each_task(*shape, [&](int64_t i) { Task<bf16>(*shape, i).backward(q, k, v, sums, dout, dq, dk, dv); });
}
