/* Drawing a token from logits that are infinite or no numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "saved/sampling.h"

enum { TOKENS = 6, DRAWS = 400 };

static struct choice room[TOKENS];

/* Draws often, and counts each token. */
static void count_draws(draw *d, const float *logits, int *counts)
{
    d->count = TOKENS;
    d->choices = room;
    for (int i = 0; i < TOKENS; i++)
        counts[i] = 0;
    for (int i = 0; i < DRAWS; i++) {
        const int32_t token = draw_token(d, logits, 0, i);
        assert_in_range(token, 0, TOKENS - 1);
        counts[token]++;
    }
}

/* The tokens of the largest logit share the probability, whatever restricts the choice. */
static void infinite_logits_share_the_probability(void **state)
{
    static const float several[TOKENS] = {1, INFINITY, 3, INFINITY, -INFINITY, NAN};
    static const float none[TOKENS] = {-INFINITY, -INFINITY, NAN, NAN, NAN, NAN};
    draw settings[] = {{.temperature = 1, .top_p = 1, .seed = 7},
                       {.temperature = 0.5, .top_k = 3, .top_p = 1, .seed = 7},
                       {.temperature = 2, .top_p = 0.9, .seed = 7}};
    (void)state;
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        int counts[TOKENS];
        count_draws(&settings[s], several, counts);
        assert_int_equal(counts[1] + counts[3], DRAWS);
        assert_in_range(counts[1], DRAWS * 2 / 5, DRAWS * 3 / 5);
        count_draws(&settings[s], none, counts);
        assert_int_equal(counts[0] + counts[1], DRAWS);
        assert_in_range(counts[0], DRAWS * 2 / 5, DRAWS * 3 / 5);
    }
}

static void without_a_number_there_is_no_token(void **state)
{
    static const float logits[TOKENS] = {NAN, NAN, NAN, NAN, NAN, NAN};
    draw d = {.temperature = 1, .top_p = 1, .count = TOKENS, .choices = room};
    (void)state;
    assert_int_equal(draw_token(&d, logits, 0, 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infinite_logits_share_the_probability),
        cmocka_unit_test(without_a_number_there_is_no_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
