/* Checks of data sets and of error messages, for the tests of readers. */
#ifndef CLT_TESTS_DATA_EXPECT_H
#define CLT_TESTS_DATA_EXPECT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include <cltrain/data.h>

/* Checks that the last error message is one line and contains all words. */
static inline void expect_words(const char *const *words)
{
    for (; *words; words++)
        if (!strstr(clt_error_message(), *words))
            fail_msg("'%s' lacks '%s'", clt_error_message(), *words);
    assert_null(strchr(clt_error_message(), '\n'));
}
#define EXPECT_FAILURE(call, status, ...)                                                          \
    do {                                                                                           \
        assert_int_equal(call, status);                                                            \
        expect_words((const char *const[]){__VA_ARGS__, NULL});                                    \
    } while (0)

/* Checks that a field has this type and shape ("[3,32,32]"). Returns the number of the field. */
static inline int expect_field(const clt_dataset *d, const char *name, clt_dtype want,
                               const char *shape)
{
    int field, rank;
    int64_t dims[CLT_DATA_MAX_RANK], bytes;
    clt_dtype dtype;
    char text[128] = "[";
    if (clt_dataset_find_field(d, name, &field) != CLT_OK)
        fail_msg("%s", clt_error_message());
    assert_int_equal(clt_dataset_field_info(d, field, NULL, &dtype, &rank, dims, &bytes), CLT_OK);
    assert_int_equal(dtype, want);
    for (int i = 0; i < rank; i++)
        sprintf(text + strlen(text), "%s%lld", i ? "," : "", (long long)dims[i]);
    strcat(text, "]");
    assert_string_equal(text, shape);
    return field;
}

/* Opens a data set that must be valid. `split` is "train" or "test". */
static inline clt_dataset *expect_open(const char *spec, const char *split,
                                       clt_dataset_options *options)
{
    clt_dataset_options defaults;
    clt_dataset *d = NULL;
    if (!options) {
        clt_dataset_options_init(&defaults);
        options = &defaults;
    }
    options->split = split;
    if (clt_dataset_open(spec, options, &d) != CLT_OK)
        fail_msg("%s", clt_error_message());
    return d;
}

#endif
