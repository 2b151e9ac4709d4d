#include "data/image/resample.h"

#include <stdatomic.h>
#include <string.h>

#if defined __x86_64__ && defined __GNUC__
#define HAS_AVX2
#include <immintrin.h>
#endif

enum { BITS = CLT_RESAMPLE_BITS, HALF = 1 << (BITS - 1), COLOURS = 3 };

/* --- portable --------------------------------------------------------------------------------- */

static unsigned char to_byte(int32_t sum)
{
    const int32_t value = sum >> BITS;
    return (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void along_row(const unsigned char *from, const clt_resample_axis *a, int columns,
                      unsigned char *to)
{
    for (int i = 0; i < columns; i++) {
        const unsigned char *in = from + (size_t)a->begin[i] * COLOURS;
        const int32_t *weights = a->weights + i * a->taps;
        int32_t r = HALF, g = r, b = r;
        for (int k = 0; k < a->count[i]; k++, in += COLOURS) {
            r += weights[k] * in[0];
            g += weights[k] * in[1];
            b += weights[k] * in[2];
        }
        to[i] = to_byte(r);
        to[columns + i] = to_byte(g);
        to[2 * columns + i] = to_byte(b);
    }
}

static void along_columns(const unsigned char *from, size_t bytes, const int32_t *weights,
                          int count, unsigned char *to)
{
    enum { BLOCK = 32 };
    for (size_t i = 0; i < bytes; i += BLOCK) {
        const size_t n = bytes - i < BLOCK ? bytes - i : BLOCK;
        int32_t sums[BLOCK];
        for (size_t j = 0; j < n; j++)
            sums[j] = HALF;
        for (int k = 0; k < count; k++)
            for (size_t j = 0; j < n; j++)
                sums[j] += weights[k] * from[(size_t)k * bytes + i + j];
        for (size_t j = 0; j < n; j++)
            to[i + j] = to_byte(sums[j]);
    }
}

static const clt_resample_method portable = {"portable", false, along_row, along_columns};

/* --- AVX2 ------------------------------------------------------------------------------------- */

#ifdef HAS_AVX2

/* Returns 128 bits of `low` and of `high`, both unaligned. */
__attribute__((target("avx2"))) static inline __m256i both(const void *low, const void *high)
{
    const __m128i first = _mm_loadu_si128(low);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first), _mm_loadu_si128(high), 1);
}

/* Computes output `i` in the lower half and `i + 1` in the upper half, a colour in each 32 bits.
 * The fourth holds nothing. Products of 16 bits take two pixels at a time. The weights' upper parts
 * are summed apart from their lower parts, so the sum has all bits. */
__attribute__((target("avx2"))) static inline __m256i two_outputs(const unsigned char *from,
                                                                  const clt_resample_axis *a, int i)
{
    enum { GROUP = CLT_RESAMPLE_GROUP, PARTS = 2 * GROUP };
    const __m256i first =
        _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 0, -1, 3, -1, 1,
                         -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    const __m256i second =
        _mm256_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1, 6, -1, 9, -1,
                         7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    const unsigned char *in = from + (size_t)a->group_begin[i] * COLOURS;
    const unsigned char *next = from + (size_t)a->group_begin[i + 1] * COLOURS;
    const int16_t *parts = a->parts + (size_t)i * (size_t)a->groups * PARTS;
    const int16_t *next_parts = parts + (size_t)a->groups * PARTS;
    __m256i high = _mm256_setzero_si256(), low = _mm256_set1_epi32(HALF);
    for (int g = 0; g < a->groups; g++) {
        const __m256i pixels = both(in + g * GROUP * COLOURS, next + g * GROUP * COLOURS);
        const __m256i weights = both(parts + g * PARTS, next_parts + g * PARTS);
        const __m256i x = _mm256_shuffle_epi8(pixels, first);
        const __m256i y = _mm256_shuffle_epi8(pixels, second);
        high = _mm256_add_epi32(high, _mm256_madd_epi16(x, _mm256_shuffle_epi32(weights, 0x00)));
        high = _mm256_add_epi32(high, _mm256_madd_epi16(y, _mm256_shuffle_epi32(weights, 0x55)));
        low = _mm256_add_epi32(low, _mm256_madd_epi16(x, _mm256_shuffle_epi32(weights, 0xAA)));
        low = _mm256_add_epi32(low, _mm256_madd_epi16(y, _mm256_shuffle_epi32(weights, 0xFF)));
    }
    const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, CLT_RESAMPLE_LOW), low);
    return _mm256_srai_epi32(sum, BITS);
}

/* Takes four outputs at a time. The last four may overlap those before. */
__attribute__((target("avx2"))) static void along_row_avx2(const unsigned char *from,
                                                           const clt_resample_axis *a, int columns,
                                                           unsigned char *to)
{
    enum { OUTPUTS = 4 };
    const __m128i planes = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, -1, -1, -1, -1);
    if (columns < OUTPUTS) {
        along_row(from, a, columns, to);
        return;
    }
    for (int i = 0; i < columns; i += OUTPUTS) {
        const int at = i + OUTPUTS > columns ? columns - OUTPUTS : i;
        const __m256i words =
            _mm256_packs_epi32(two_outputs(from, a, at), two_outputs(from, a, at + 2));
        const __m256i bytes = _mm256_packus_epi16(words, words);
        __m128i rgb =
            _mm_unpacklo_epi8(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
        rgb = _mm_shuffle_epi8(rgb, planes);
        for (int c = 0; c < COLOURS; c++) {
            const int four = _mm_cvtsi128_si32(rgb);
            memcpy(to + c * columns + at, &four, sizeof four);
            rgb = _mm_srli_si128(rgb, sizeof four);
        }
    }
}

__attribute__((target("avx2"))) static void along_columns_avx2(const unsigned char *from,
                                                               size_t bytes, const int32_t *weights,
                                                               int count, unsigned char *to)
{
    enum { BLOCK = 32, PARTS = 4, LANES = 8 };
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    size_t i = 0;
    for (; i + BLOCK <= bytes; i += BLOCK) {
        __m256i sums[PARTS];
        for (int p = 0; p < PARTS; p++)
            sums[p] = _mm256_set1_epi32(HALF);
        for (int k = 0; k < count; k++) {
            const unsigned char *in = from + (size_t)k * bytes + i;
            const __m256i w = _mm256_set1_epi32(weights[k]);
            for (int p = 0; p < PARTS; p++) {
                const __m128i eight = _mm_loadl_epi64((const __m128i *)(in + p * LANES));
                sums[p] =
                    _mm256_add_epi32(sums[p], _mm256_mullo_epi32(_mm256_cvtepu8_epi32(eight), w));
            }
        }
        for (int p = 0; p < PARTS; p++)
            sums[p] = _mm256_srai_epi32(sums[p], BITS);
        const __m256i low = _mm256_packs_epi32(sums[0], sums[1]);
        const __m256i high = _mm256_packs_epi32(sums[2], sums[3]);
        const __m256i mixed = _mm256_packus_epi16(low, high);
        _mm256_storeu_si256((__m256i *)(to + i), _mm256_permutevar8x32_epi32(mixed, order));
    }
    for (; i < bytes; i++) {
        int32_t sum = HALF;
        for (int k = 0; k < count; k++)
            sum += weights[k] * from[(size_t)k * bytes + i];
        to[i] = to_byte(sum);
    }
}

static const clt_resample_method avx2 = {"avx2", true, along_row_avx2, along_columns_avx2};

#endif

/* --- choice ----------------------------------------------------------------------------------- */

const clt_resample_method *clt_resample_methods(int index)
{
#ifdef HAS_AVX2
    if (index == 1 && __builtin_cpu_supports("avx2"))
        return &avx2;
#endif
    return index == 0 ? &portable : NULL;
}

static _Atomic(const clt_resample_method *) preferred;

void clt_resample_prefer(const clt_resample_method *method)
{
    atomic_store(&preferred, method);
}

const clt_resample_method *clt_resample_choose(void)
{
    const clt_resample_method *method = atomic_load(&preferred), *next;
    const bool chosen = method != NULL;
    for (int i = 0; !chosen && (next = clt_resample_methods(i)); i++)
        method = next;
    return method;
}
