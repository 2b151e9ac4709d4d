/* Tokenizers, compared with PyPI's tokenizers and tiktoken (goldens/make_tokenizer.py), and invalid
 * files. */
#include "data/expect.h"
#include "data/files.h"
#include "goldens/goldens.h"

#include <cltrain/tokenizer.h>
#include <jansson.h>

static char spec[512];

static int begin(void **state)
{
    char path[400];
    golden_path("tokenizer/vocab.json", path, sizeof path);
    *strrchr(path, '/') = '\0';
    snprintf(spec, sizeof spec, "gpt2:%s", path);
    return make_folder(state);
}

static int end(void **state)
{
    unlink(path_of("vocab.json"));
    unlink(path_of("merges.txt"));
    return remove_folder(state);
}

#ifdef CLT_HAVE_PCRE2

static clt_tokenizer *open_small(void)
{
    clt_tokenizer *t = NULL;
    if (clt_tokenizer_open(spec, &t) != CLT_OK)
        fail_msg("%s", clt_error_message());
    return t;
}

static void expect_case(const clt_tokenizer *t, const char *text, size_t bytes, const json_t *want)
{
    int32_t *ids = NULL;
    int64_t count = -1;
    char *back;
    size_t back_bytes;
    assert_int_equal(clt_tokenizer_encode(t, text, bytes, &ids, &count), CLT_OK);
    if (count != (int64_t)json_array_size(want))
        fail_msg("'%s': %lld tokens, not %zu", text, (long long)count, json_array_size(want));
    for (int64_t i = 0; i < count; i++)
        if (ids[i] != json_integer_value(json_array_get(want, (size_t)i)))
            fail_msg("'%s': token %lld is %d", text, (long long)i, ids[i]);
    assert_int_equal(clt_tokenizer_decode(t, ids, count, &back, &back_bytes), CLT_OK);
    assert_int_equal(back_bytes, bytes);
    assert_memory_equal(back, text, bytes + 1);
    free(back);
    free(ids);
}

static void texts_have_the_tokens_of_other_libraries(void **state)
{
    (void)state;
    char path[400];
    json_error_t error;
    golden_path("tokenizer/cases.json", path, sizeof path);
    json_t *cases = json_load_file(path, JSON_ALLOW_NUL, &error), *row;
    size_t i;
    assert_non_null(cases);
    assert_true(json_array_size(cases) > 150);
    clt_tokenizer *t = open_small();
    assert_int_equal(clt_tokenizer_vocabulary(t), 582);
    assert_int_equal(clt_tokenizer_end_of_text(t), 581);
    json_array_foreach(cases, i, row)
    {
        const json_t *text = json_object_get(row, "text");
        expect_case(t, json_string_value(text), json_string_length(text),
                    json_object_get(row, "ids"));
    }
    clt_tokenizer_free(t);
    json_decref(cases);
}

/* Decodes the token between texts, and tokens that are parts of characters. */
static void any_tokens_are_decoded(void **state)
{
    (void)state;
    clt_tokenizer *t = open_small();
    char *text;
    size_t bytes;
    int32_t ids[583];
    for (int i = 0; i < 582; i++)
        ids[i] = i;
    assert_int_equal(clt_tokenizer_decode(t, ids + 581, 1, &text, &bytes), CLT_OK);
    assert_string_equal(text, "<|endoftext|>");
    free(text);
    assert_int_equal(clt_tokenizer_decode(t, ids, 256, &text, &bytes), CLT_OK);
    assert_int_equal(bytes, 256); /* the first 256 tokens are the bytes, each once */
    int seen[256] = {0};
    for (int i = 0; i < 256; i++)
        seen[(unsigned char)text[i]] = 1;
    for (int i = 0; i < 256; i++)
        assert_true(seen[i]);
    free(text);
    ids[2] = 582;
    EXPECT_FAILURE(clt_tokenizer_decode(t, ids, 3, &text, &bytes), CLT_INVALID_ARGUMENT,
                   "token 582", "position 2", "0 to 581");
    ids[0] = -1;
    EXPECT_FAILURE(clt_tokenizer_decode(t, ids, 3, &text, &bytes), CLT_INVALID_ARGUMENT, "token -1",
                   "position 0");
    assert_int_equal(clt_tokenizer_decode(t, NULL, 0, &text, &bytes), CLT_OK);
    assert_string_equal(text, "");
    free(text);
    clt_tokenizer_free(t);
}

static void what_is_not_utf8_is_said_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
        const char *place;
    } rows[] = {
        {"ab\xff", 3, "byte 2"},           {"\xc3", 1, "byte 0"},
        {"a\xc0\x80", 3, "byte 1"},        {"\xed\xa0\x80", 3, "byte 0"},
        {"\xf4\x90\x80\x80", 4, "byte 0"}, {"\xe2\x82x", 3, "byte 0"},
        {"\xe0\x80\x80", 3, "byte 0"},     {"\xf5\x80\x80\x80", 4, "byte 0"},
        {"\xc3\xa9\x80", 3, "byte 2"},
    };
    clt_tokenizer *t = open_small();
    int32_t *ids = NULL;
    int64_t count;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        EXPECT_FAILURE(clt_tokenizer_encode(t, rows[i].text, rows[i].bytes, &ids, &count),
                       CLT_FORMAT, "UTF-8", rows[i].place);
    assert_null(ids);
    clt_tokenizer_free(t);
}

/* A long text without spaces is a single piece. Merging must not take quadratic time. */
static void a_long_piece_is_merged_as_its_parts(void **state)
{
    (void)state;
    enum { LENGTH = 1 << 20 };
    clt_tokenizer *t = open_small();
    char *text = malloc(LENGTH), *back;
    int32_t *ids;
    int64_t count;
    size_t bytes;
    assert_non_null(text);
    for (int i = 0; i < LENGTH; i++)
        text[i] = "thequickbrownfox"[(int64_t)i * (i >> 4) % 16];
    assert_int_equal(clt_tokenizer_encode(t, text, LENGTH, &ids, &count), CLT_OK);
    assert_true(count < LENGTH);
    assert_int_equal(clt_tokenizer_decode(t, ids, count, &back, &bytes), CLT_OK);
    assert_int_equal(bytes, LENGTH);
    assert_memory_equal(back, text, LENGTH);
    free(back);
    free(ids);
    free(text);
    clt_tokenizer_free(t);
}

/* Checks that opening these files fails with this message. */
static void fails(const char *vocabulary, const char *merges, clt_status status, const char *a,
                  const char *b)
{
    char own[96];
    clt_tokenizer *t = NULL;
    snprintf(own, sizeof own, "gpt2:%s", folder);
    unlink(path_of("vocab.json"));
    unlink(path_of("merges.txt"));
    if (vocabulary)
        spill("vocab.json", vocabulary, strlen(vocabulary));
    if (merges)
        spill("merges.txt", merges, strlen(merges));
    EXPECT_FAILURE(clt_tokenizer_open(own, &t), status, a, b);
    assert_null(t);
}

static void what_is_wrong_is_said_with_its_file(void **state)
{
    (void)state;
    const char *good = "{\"a\": 0, \"b\": 1, \"ab\": 2}";
    fails(NULL, NULL, CLT_NOT_FOUND, "vocab.json", "");
    fails(good, NULL, CLT_NOT_FOUND, "merges.txt", "");
    fails("{\"a\": 0,\n \"b\" 1}", "", CLT_FORMAT, "vocab.json: line 2", "");
    fails("[]", "", CLT_FORMAT, "vocab.json", "not an object");
    fails("{\"a\": 0, \"b\": 2}", "", CLT_FORMAT, "vocab.json", "'b'");
    fails("{\"a\": 0, \"b\": \"1\"}", "", CLT_FORMAT, "vocab.json", "'b'");
    fails("{\"a\": 0, \"b\": 0}", "", CLT_FORMAT, "same number 0", "vocab.json");
    fails(good, "#version: 0.2\na c\n", CLT_FORMAT, "merges.txt: line 2", "'c' is not");
    fails(good, "b a\n", CLT_FORMAT, "merges.txt: line 1", "'ba' is not");
    fails(good, "a b\n\nab\n", CLT_FORMAT, "merges.txt: line 3", "two tokens");
    fails(good, "a b\na b\n", CLT_FORMAT, "merges.txt: line 2", "before");
    clt_tokenizer *t;
    EXPECT_FAILURE(clt_tokenizer_open("gpt3", &t), CLT_NOT_FOUND, "gpt3", "gpt2:DIR");
    char own[96];
    spill("vocab.json", good, strlen(good));
    spill("merges.txt", "a b\n", 4);
    snprintf(own, sizeof own, "gpt2:%s", folder);
    assert_int_equal(clt_tokenizer_open(own, &t), CLT_OK);
    int32_t *ids;
    int64_t count;
    assert_int_equal(clt_tokenizer_end_of_text(t), -1);
    EXPECT_FAILURE(clt_tokenizer_encode(t, "abc", 3, &ids, &count), CLT_FORMAT,
                   "no token for byte 99", own);
    assert_int_equal(clt_tokenizer_encode(t, "abba", 4, &ids, &count), CLT_OK);
    assert_int_equal(count, 3);
    assert_int_equal(ids[0], 2);
    assert_int_equal(ids[1], 1);
    free(ids);
    clt_tokenizer_free(t);
}

#else

static void without_pcre2_it_says_so(void **state)
{
    (void)state;
    clt_tokenizer *t;
    EXPECT_FAILURE(clt_tokenizer_open(spec, &t), CLT_UNSUPPORTED, "libpcre2-dev");
}

#endif

static void bytes_are_their_own_tokens(void **state)
{
    (void)state;
    clt_tokenizer *t;
    unsigned char all[256];
    int32_t *ids;
    int64_t count;
    char *text;
    size_t bytes;
    for (int i = 0; i < 256; i++)
        all[i] = (unsigned char)(255 - i);
    assert_int_equal(clt_tokenizer_open("bytes", &t), CLT_OK);
    assert_int_equal(clt_tokenizer_vocabulary(t), 256);
    assert_int_equal(clt_tokenizer_encode(t, (const char *)all, 256, &ids, &count), CLT_OK);
    assert_int_equal(count, 256);
    for (int i = 0; i < 256; i++)
        assert_int_equal(ids[i], 255 - i);
    assert_int_equal(clt_tokenizer_decode(t, ids, count, &text, &bytes), CLT_OK);
    assert_int_equal(bytes, 256);
    assert_memory_equal(text, all, 256);
    free(text);
    free(ids);
    assert_int_equal(clt_tokenizer_encode(t, NULL, 0, &ids, &count), CLT_OK);
    assert_null(ids);
    assert_int_equal(count, 0);
    clt_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef CLT_HAVE_PCRE2
        cmocka_unit_test(texts_have_the_tokens_of_other_libraries),
        cmocka_unit_test(any_tokens_are_decoded),
        cmocka_unit_test(what_is_not_utf8_is_said_with_its_place),
        cmocka_unit_test(a_long_piece_is_merged_as_its_parts),
        cmocka_unit_test(what_is_wrong_is_said_with_its_file),
#else
        cmocka_unit_test(without_pcre2_it_says_so),
#endif
        cmocka_unit_test(bytes_are_their_own_tokens),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
