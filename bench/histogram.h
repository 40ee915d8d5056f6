/* A log-linear histogram of nanoseconds: 128 steps per power of two, so a quantile is right to 0.8 %. */
#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_STEP_BITS = 7, HISTOGRAM_STEPS = 1 << HISTOGRAM_STEP_BITS, HISTOGRAM_BUCKETS = 40 * HISTOGRAM_STEPS };

struct histogram {
    uint64_t count, bucket[HISTOGRAM_BUCKETS];
};

static inline void histogram_add(struct histogram *h, uint64_t ns) {
    unsigned shift = 0, top = 63u - (unsigned)__builtin_clzll(ns | HISTOGRAM_STEPS);
    shift = top - HISTOGRAM_STEP_BITS;
    /* Below 128 the value is its own index; above, each power of two has 128 steps. */
    uint64_t index = ns < HISTOGRAM_STEPS ? ns : (uint64_t)(shift + 1) * HISTOGRAM_STEPS + ((ns >> shift) - HISTOGRAM_STEPS);
    if (index >= HISTOGRAM_BUCKETS) index = HISTOGRAM_BUCKETS - 1;
    h->bucket[index]++;
    h->count++;
}

/* Microseconds; the middle of the bucket in which the quantile lies. 0 when the histogram is empty. */
static inline double histogram_quantile_us(const struct histogram *h, double quantile) {
    uint64_t rank = (uint64_t)(quantile * (double)h->count), seen = 0;
    for (uint64_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen <= rank) continue;
        if (i < HISTOGRAM_STEPS) return (double)i / 1e3;
        unsigned shift = (unsigned)(i / HISTOGRAM_STEPS) - 1;
        double low = (double)((i % HISTOGRAM_STEPS + HISTOGRAM_STEPS) << shift);
        return (low + 0.5 * (double)(1ull << shift)) / 1e3;
    }
    return 0;
}

#endif
