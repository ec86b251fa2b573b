/* Counting OLH reports by hand: what `compiled.py` compares the project's kernels with.

   For a processor with AVX-512 or AVX2. A tile of reports stays in the first-level cache while all values pass over
   it; the inner loop handles two vectors of reports at a time. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__AVX512F__)
#define WIDTH 16
typedef __m512i words;
#define SET(x) _mm512_set1_epi32((int)(x))
#define LOAD(p) _mm512_loadu_si512(p)
#define STORE(p, x) _mm512_storeu_si512(p, x)
#define ADD _mm512_add_epi32
#define SUB _mm512_sub_epi32
#define MUL _mm512_mullo_epi32
#define XOR _mm512_xor_si512
#define AND _mm512_and_si512
#define RIGHT(x, by) _mm512_srli_epi32(x, by)
#define ROTATE(x, by) _mm512_rolv_epi32(x, SET(by))
#define COUNT_LESS(n, x, y) _mm512_mask_add_epi32(n, _mm512_cmplt_epu32_mask(x, y), n, SET(1))
#define COUNT_EQUAL(n, x, y) _mm512_mask_add_epi32(n, _mm512_cmpeq_epi32_mask(x, y), n, SET(1))
#define INSTRUCTIONS "AVX-512"
#elif defined(__AVX2__)
#define WIDTH 8
typedef __m256i words;
#define SET(x) _mm256_set1_epi32((int)(x))
#define LOAD(p) _mm256_loadu_si256((const words *)(p))
#define STORE(p, x) _mm256_storeu_si256((words *)(p), x)
#define ADD _mm256_add_epi32
#define SUB _mm256_sub_epi32
#define MUL _mm256_mullo_epi32
#define XOR _mm256_xor_si256
#define AND _mm256_and_si256
#define RIGHT(x, by) _mm256_srli_epi32(x, by)
#define ROTATE(x, by) _mm256_or_si256(_mm256_sllv_epi32(x, SET((by) & 31)), _mm256_srlv_epi32(x, SET(-(by) & 31)))
#define SIGNED(x) XOR(x, SET(0x80000000u))
#define COUNT_LESS(n, x, y) SUB(n, _mm256_cmpgt_epi32(SIGNED(y), SIGNED(x)))
#define COUNT_EQUAL(n, x, y) SUB(n, _mm256_cmpeq_epi32(x, y))
#define INSTRUCTIONS "AVX2"
#else
#error "neither AVX-512 nor AVX2"
#endif

#define TILE 2048
#define STRIDE (2 * WIDTH)
#define SHIFTED(x, by) XOR(x, RIGHT(x, by))

static const uint32_t P1 = 0x9E3779B1, P2 = 0x85EBCA77, P3 = 0xC2B2AE3D, P4 = 0x27D4EB2F, P5 = 0x165667B1;

const char *instructions(void) { return INSTRUCTIONS; }

static uint32_t sum(words hits) {
    uint32_t lanes[WIDTH], total = 0;
    STORE(lanes, hits);
    for (int i = 0; i < WIDTH; i++) total += lanes[i];
    return total;
}

static uint32_t mixed(uint32_t x) {
    x = (x ^ x >> 16) * 0x7FEB352Du;
    x = (x ^ x >> 15) * 0x846CA68Bu;
    return x ^ x >> 16;
}

static inline __attribute__((always_inline)) words hashed(words x, words e, words a, words b, words c) {
    x = MUL(XOR(x, e), a);
    return MUL(XOR(SHIFTED(x, 11), b), c);
}

static inline __attribute__((always_inline)) void pass_mul32(
    int64_t *state, size_t d, const uint32_t *seed, const uint32_t *low, const uint32_t *width, size_t n) {
    for (size_t v = 0; v < d; v++) {
        uint32_t ve = mixed((uint32_t)v + P1), vb = mixed(ve + P1), vc = mixed(vb + P1);
        words a = SET(P3 + 0x78DDE6C4u * (uint32_t)v), b = SET(vb), c = SET((vc & 0xCCCCCCCCu) | 0x11111111u);
        words e = SET(ve), even = SET(0), odd = SET(0);
        for (size_t i = 0; i < n; i += STRIDE) {
            words x = SUB(hashed(LOAD(seed + i), e, a, b, c), LOAD(low + i));
            words y = SUB(hashed(LOAD(seed + i + WIDTH), e, a, b, c), LOAD(low + i + WIDTH));
            even = COUNT_LESS(even, x, LOAD(width + i));
            odd = COUNT_LESS(odd, y, LOAD(width + i + WIDTH));
        }
        state[v] += sum(ADD(even, odd));
    }
}

void count_mul32(int64_t *state, size_t d, const uint32_t *seeds, const uint32_t *buckets, size_t n, uint32_t g) {
    uint32_t seed[TILE], low[TILE], width[TILE];
    for (size_t start = 0; start < n; start += TILE) {
        size_t used = n - start < TILE ? n - start : TILE;
        for (size_t i = 0; i < used; i++) {
            uint64_t b = buckets[start + i], first = ((b << 32) + g - 1) / g;
            seed[i] = seeds[start + i];
            low[i] = (uint32_t)first;
            width[i] = (uint32_t)((((b + 1) << 32) + g - 1) / g - first);
        }
        for (; used % STRIDE; used++) seed[used] = low[used] = width[used] = 0;
        pass_mul32(state, d, seed, low, width, used);
    }
}

static inline __attribute__((always_inline)) words stepped(words h, uint32_t add, uint32_t by, uint32_t factor) {
    return MUL(ROTATE(ADD(h, SET(add)), by), SET(factor));
}

static inline __attribute__((always_inline)) words avalanche(words h) {
    h = MUL(SHIFTED(h, 15), SET(P2));
    h = MUL(SHIFTED(h, 13), SET(P3));
    return SHIFTED(h, 16);
}

/* h mod g = b, with g = odd << twos: by a mask where odd is 1, else rotr((h - b) / odd, twos) < limit. */
static inline __attribute__((always_inline)) void pass_xxh32(
    int64_t *state, size_t d, const uint32_t *seed, uint32_t *prefix, const uint32_t *offset, const uint32_t *limit,
    size_t n, uint32_t g, uint32_t inverse, uint32_t twos, int power) {
    int shared = -1;
    for (size_t v = 0; v < d; v++) {
        unsigned char digits[12], *text = digits + sizeof digits - 1;
        size_t rest = v / 10;
        for (*text = (unsigned char)('0' + v % 10); rest; rest /= 10) *--text = (unsigned char)('0' + rest % 10);
        int length = (int)(digits + sizeof digits - text), lanes = length / 4, steps = lanes + length % 4;
        int whole = length % 4 == 0;
        uint32_t add[12];
        for (int s = 0; s < steps; s++) {
            const unsigned char *at = text + (s < lanes ? 4 * s : 3 * lanes + s);
            uint32_t lane = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
            add[s] = s < lanes ? lane * P3 : at[0] * P5;
        }
        add[0] += P5 + (uint32_t)length;
        const uint32_t *before = seed;
        if (steps > 1) { /* all but the last step, shared with the values before */
            int head = (int)(v / (whole ? 10000 : 10));
            for (size_t i = 0; head != shared && i < n; i += WIDTH) {
                words h = LOAD(seed + i);
                for (int s = 0; s < steps - 1; s++) h = stepped(h, add[s], s < lanes ? 17 : 11, s < lanes ? P4 : P1);
                STORE(prefix + i, h);
            }
            shared = head;
            before = prefix;
        }
        uint32_t own = add[steps - 1], by = whole ? 17 : 11, factor = whole ? P4 : P1;
        words even = SET(0), odd = SET(0);
        for (size_t i = 0; i < n; i += STRIDE) {
            words x = avalanche(stepped(LOAD(before + i), own, by, factor));
            words y = avalanche(stepped(LOAD(before + i + WIDTH), own, by, factor));
            if (power) {
                even = COUNT_EQUAL(even, AND(x, SET(g - 1)), LOAD(offset + i));
                odd = COUNT_EQUAL(odd, AND(y, SET(g - 1)), LOAD(offset + i + WIDTH));
            } else {
                x = ROTATE(SUB(MUL(x, SET(inverse)), LOAD(offset + i)), 32 - twos);
                y = ROTATE(SUB(MUL(y, SET(inverse)), LOAD(offset + i + WIDTH)), 32 - twos);
                even = COUNT_LESS(even, x, LOAD(limit + i));
                odd = COUNT_LESS(odd, y, LOAD(limit + i + WIDTH));
            }
        }
        state[v] += sum(ADD(even, odd));
    }
}

void count_xxh32(int64_t *state, size_t d, const uint32_t *seeds, const uint32_t *buckets, size_t n, uint32_t g) {
    uint32_t seed[TILE], prefix[TILE], offset[TILE], limit[TILE];
    uint32_t twos = (uint32_t)__builtin_ctz(g), odd = g >> twos, inverse = odd;
    for (int i = 0; i < 4; i++) inverse *= 2 - odd * inverse;
    for (size_t start = 0; start < n; start += TILE) {
        size_t used = n - start < TILE ? n - start : TILE;
        for (size_t i = 0; i < used; i++) {
            uint32_t b = buckets[start + i];
            seed[i] = seeds[start + i];
            offset[i] = odd == 1 ? b : b * inverse;
            limit[i] = (0xFFFFFFFFu - b) / g + 1;
        }
        for (; used % STRIDE; used++) {
            seed[used] = limit[used] = 0;
            offset[used] = 0xFFFFFFFFu;
        }
        if (odd == 1)
            pass_xxh32(state, d, seed, prefix, offset, limit, used, g, inverse, twos, 1);
        else
            pass_xxh32(state, d, seed, prefix, offset, limit, used, g, inverse, twos, 0);
    }
}
