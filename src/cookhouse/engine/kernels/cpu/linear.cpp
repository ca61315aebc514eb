// A linear layer with the adapters of its rows, y = W x + bias + scaling · B A x, forward and backward, in bf16 by tiles;
// or the adapters alone, where W is null, added to what is there.
//
// Both ways are one product of rows z with a wide matrix, plus one of t = scaling · z · (a thin matrix) with another:
// forward z is x, the wide matrix Wᵀ, the thin ones Aᵀ and Bᵀ; backward z is dy, and the matrices W, B and A.
//
// Legend: N packed positions, I features in, O features out, R rank.

#include "lora.h"
#include "tiles.h"

#ifdef HAS_TILES

namespace {

constexpr int64_t kCached = 1 << 18;  // numbers of the wide matrix that are packed at a time, to stay in the cache

// Up to 32 rows that go through one adapter or, where it is null, through none.
struct Rows {
    int64_t first, count;
    const LoraSegment* adapter;
    const bf16 *narrowing, *widening;  // its matrices, packed
    bf16* turned;                      // receives t transposed, (R rounded up to 32, 32)
    bf16* t;                           // (32, R rounded up to 32)
};

inline int64_t width(const LoraSegment& s) { return edges(s.rank) * kEdge; }
inline int64_t num_blocks(const LoraSegment& s) { return edges(s.stop - s.start); }

struct Rooms {
    Room wide, thin, t, edge, panel, turned;
};
inline Rooms& rooms() {
    thread_local Rooms kept;
    return kept;
}

class Layer {
   public:
    // Segments ascend; rows between them go through no adapter.
    Layer(const LoraSegment* segments, int64_t count, int64_t num_rows, int64_t in, int64_t out)
        : segments_(segments), count_(count), num_rows_(num_rows), in_(in), out_(out) {}

    // y (N, n), rounded or in fp32, = z · wide + bias + t · widening, or += t · widening; `turned` receives each segment's t
    // transposed, block after block.
    template <typename Y>
    void apply(const bf16* z, Right wide, const bf16* bias, bool is_forward, bf16* turned, Y* y) {
        plan(is_forward, turned);
        int64_t k = wide.k, n = wide.n, num_columns = n;
        if (wide.data) num_columns = std::min(n, std::max<int64_t>(1, kCached / wide.panel_size()) * kEdge);
        bf16* packed = wide.data ? rooms().wide.take(num_columns / kEdge * wide.panel_size()) : nullptr;
#pragma omp parallel
        {
            Tiles tiles;
#pragma omp for schedule(dynamic) nowait
            for (int64_t s = 0; s < count_; ++s) pack_adapter(s, is_forward);
            for (int64_t start = 0; start < n; start += num_columns) {
                int64_t stop = std::min(start + num_columns, n);
#pragma omp for schedule(static)
                for (int64_t c = start; c < (wide.data ? stop : start); c += kEdge) wide.pack(c, packed + (c - start) * edges(k) * kEdge);
#pragma omp for schedule(static) nowait
                for (size_t b = 0; b < rows_.size(); ++b) {
                    const Rows& rows = rows_[b];
                    if (!wide.data && !rows.adapter) continue;
                    Left left(z + rows.first * k, k, k, rows.count, rooms().edge);
                    if (rows.adapter && start == 0) narrow_rows(left.data, k, rows);
                    for (int64_t c = start; c < stop; c += kEdge)
                        widen_rows(wide.data ? left.data : nullptr, k, rows, packed + (c - start) * edges(k) * kEdge, bias, c, y, n);
                }
                if (stop < n) {
#pragma omp barrier
                }
            }
        }
    }

    // Adds the gradients of A, given t of the way back, and of B, given that of the way forward.
    void add_gradients(const bf16* x, const bf16* dy, const bf16* low, const bf16* dlow) const {
#pragma omp parallel
        {
            Tiles tiles;
            int64_t offset = 0;
            for (int64_t s = 0; s < count_; offset += turned_size(segments_[s++])) {
                const LoraSegment& segment = segments_[s];
                if (!segment.da) continue;
                add_gradient(segment, dlow + offset, x, in_, segment.da, in_, 1);
                add_gradient(segment, low + offset, dy, out_, segment.db, 1, segment.rank);
            }
        }
    }

    static int64_t turned_size(const LoraSegment& s) { return num_blocks(s) * kEdge * width(s); }

   private:
    Right narrowing(const LoraSegment& s, bool is_forward) const {
        return is_forward ? Right{(const bf16*)s.a, in_, s.rank, true, in_} : Right{(const bf16*)s.b, out_, s.rank, false, s.rank};
    }
    Right widening(const LoraSegment& s, bool is_forward) const {
        return is_forward ? Right{(const bf16*)s.b, s.rank, out_, true, s.rank} : Right{(const bf16*)s.a, s.rank, in_, false, in_};
    }

    void plan(bool is_forward, bf16* turned) {
        int64_t thin_size = 0, t_size = 0;
        for (int64_t s = 0; s < count_; ++s) {
            thin_size += width(segments_[s]) * edges(in_ + out_) * kEdge;
            t_size += turned_size(segments_[s]);
        }
        bf16 *thin = rooms().thin.take(thin_size), *t = rooms().t.take(t_size);
        int64_t row = 0;
        for (int64_t s = 0; s < count_; ++s) {
            const LoraSegment& segment = segments_[s];
            add_rows(row, segment.start, Rows{});
            const bf16* second = thin + width(segment) * narrowing(segment, is_forward).k;
            packed_.push_back(thin);
            add_rows(segment.start, segment.stop, Rows{0, 0, &segment, thin, second, turned, t});
            thin += width(segment) * (in_ + out_);
            turned += turned_size(segment);
            t += turned_size(segment);
            row = segment.stop;
        }
        add_rows(row, num_rows_, Rows{});
    }

    void add_rows(int64_t start, int64_t stop, Rows rows) {
        for (rows.first = start; rows.first < stop; rows.first += kEdge) {
            rows.count = std::min(kEdge, stop - rows.first);
            rows_.push_back(rows);
            if (!rows.adapter) continue;
            rows.turned += kEdge * width(*rows.adapter);
            rows.t += kEdge * width(*rows.adapter);
        }
    }

    void pack_adapter(int64_t s, bool is_forward) const {
        Right first = narrowing(segments_[s], is_forward);
        first.pack_all(packed_[s]);
        widening(segments_[s], is_forward).pack_all(packed_[s] + width(segments_[s]) * first.k);
    }

    static void narrow_rows(const bf16* left, int64_t k, const Rows& rows) {
        int64_t wide = width(*rows.adapter);
        Vec scaling = Vec{} + float(rows.adapter->scaling);
        for (int64_t r = 0; r < wide; r += kEdge) {
            Block sums;
            clear_sums();
            add_product(left, k, kEdge, rows.narrowing + r * k, k / kEdge);
            store_sums(sums);
            for (int64_t i = 0; i < kEdge; ++i) {
                auto [a, b] = in_order(sums.rows[i]);
                store_row(rows.t + i * wide + r, a * scaling, b * scaling);
            }
            each_column(sums, [&](int64_t c, Vec a, Vec b) { store_row(rows.turned + (r + c) * kEdge, a * scaling, b * scaling); });
        }
    }

    template <typename Y>
    static void widen_rows(const bf16* left, int64_t k, const Rows& rows, const bf16* panel, const bf16* bias, int64_t column, Y* y, int64_t n) {
        Block sums;
        clear_sums();
        if (left) add_product(left, k, kEdge, panel, k / kEdge);
        if (rows.adapter) {
            int64_t wide = width(*rows.adapter);
            add_product(rows.t, wide, kEdge, rows.widening + column * wide, wide / kEdge);
        }
        store_sums(sums);
        Vec first = {}, second = {};
        if (bias) first = load(bias + column), second = load(bias + column + kLanes);
        for (int64_t i = 0; i < rows.count; ++i) {
            auto [a, b] = in_order(sums.rows[i]);
            Y* to = y + (rows.first + i) * n + column;
            if (!left) first = load(to), second = load(to + kLanes);
            store_row(to, a + first, b + second);
        }
    }

    // target (R, features), `row` and `column` apart, += tᵀ · z, of one segment.
    static void add_gradient(const LoraSegment& s, const bf16* turned, const bf16* z, int64_t features, float* target, int64_t row, int64_t column) {
        Right right{z + s.start * features, s.stop - s.start, features, false, features};
#pragma omp for schedule(static) nowait
        for (int64_t c = 0; c < features; c += kEdge) {
            bf16* panel = rooms().panel.take(right.panel_size());
            right.pack(c, panel);
            for (int64_t r = 0; r < s.rank; r += kEdge) {
                Block sums;
                clear_sums();
                add_product(turned + r * kEdge, kEdge, kEdge * width(s), panel, num_blocks(s));
                store_sums(sums);
                int64_t rank = std::min(kEdge, s.rank - r);
                float* at = target + r * row + c * column;
                if (column == 1)
                    for (int64_t i = 0; i < rank; ++i) {
                        auto [a, b] = in_order(sums.rows[i]);
                        store(at + i * row, load(at + i * row) + a);
                        store(at + i * row + kLanes, load(at + i * row + kLanes) + b);
                    }
                else
                    each_column(sums, [&](int64_t j, Vec a, Vec b) {
                        alignas(64) float found[kEdge];
                        store(found, a);
                        store(found + kLanes, b);
                        for (int64_t i = 0; i < rank; ++i) at[j * column + i] += found[i];
                    });
            }
        }
    }

    const LoraSegment* segments_;
    int64_t count_, num_rows_, in_, out_;
    std::vector<Rows> rows_;
    std::vector<bf16*> packed_;
};

}  // namespace

extern "C" bool has_tiles() { return are_tiles_allowed(); }

// `low` receives what the way back needs of each segment, (rows / 32, R, 32) with both rounded up. `bias` may be null.
extern "C" void wide_linear_bf16(const LoraSegment* segments, int64_t count, const bf16* x, int64_t rows, int64_t in, const bf16* w, const bf16* bias,
                                 int64_t out, bf16* low, float* y) {
    Layer(segments, count, rows, in, out).apply(x, Right{w, in, out, true, in}, bias, true, low, y);
}

extern "C" void linear_bf16(const LoraSegment* segments, int64_t count, const bf16* x, int64_t rows, int64_t in, const bf16* w, const bf16* bias,
                            int64_t out, bf16* low, bf16* y) {
    Layer(segments, count, rows, in, out).apply(x, Right{w, in, out, true, in}, bias, true, low, y);
}

extern "C" void linear_backward_bf16(const LoraSegment* segments, int64_t count, const bf16* x, int64_t rows, int64_t in, const bf16* w,
                                     const bf16* low, int64_t out, const bf16* dy, bf16* dx) {
    Layer layer(segments, count, rows, in, out);
    int64_t size = 0;
    for (int64_t s = 0; s < count; ++s) size += Layer::turned_size(segments[s]);
    bf16* dlow = rooms().turned.take(size);
    layer.apply(dy, Right{w, out, in, false, in}, nullptr, false, dlow, dx);
    layer.add_gradients(x, dy, low, dlow);
}

#else

extern "C" bool has_tiles() { return false; }

#endif
