#include "data/image/resample.h"

#include <stdatomic.h>

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

static const clt_resample_method portable = {"portable", along_row, along_columns};

/* --- AVX2 ------------------------------------------------------------------------------------- */

#ifdef HAS_AVX2

/* Takes two pixels at a time, with a colour in each 32 bits. The fourth and eighth hold nothing. */
__attribute__((target("avx2"))) static void along_row_avx2(const unsigned char *from,
                                                           const clt_resample_axis *a, int columns,
                                                           unsigned char *to)
{
    const __m128i apart = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i each = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    for (int i = 0; i < columns; i++) {
        const unsigned char *in = from + (size_t)a->begin[i] * COLOURS;
        const int32_t *weights = a->weights + i * a->taps;
        __m256i sums = _mm256_setzero_si256();
        for (int k = 0; k < a->count[i]; k += 2, in += 2 * COLOURS) {
            const __m128i bytes = _mm_loadl_epi64((const __m128i *)in);
            const __m128i two = _mm_loadl_epi64((const __m128i *)(weights + k));
            const __m256i colours = _mm256_cvtepu8_epi32(_mm_shuffle_epi8(bytes, apart));
            const __m256i w = _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(two), each);
            sums = _mm256_add_epi32(sums, _mm256_mullo_epi32(colours, w));
        }
        __m128i sum =
            _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
        sum = _mm_srai_epi32(_mm_add_epi32(sum, _mm_set1_epi32(HALF)), BITS);
        sum = _mm_packus_epi16(_mm_packs_epi32(sum, sum), sum);
        const uint32_t rgb = (uint32_t)_mm_cvtsi128_si32(sum);
        to[i] = (unsigned char)rgb;
        to[columns + i] = (unsigned char)(rgb >> 8);
        to[2 * columns + i] = (unsigned char)(rgb >> 16);
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

static const clt_resample_method avx2 = {"avx2", along_row_avx2, along_columns_avx2};

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
