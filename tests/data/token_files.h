/* Token files for tests. Each token tells its file and place. */
#ifndef CLT_TESTS_DATA_TOKEN_FILES_H
#define CLT_TESTS_DATA_TOKEN_FILES_H

#include "data/expect.h"
#include "data/core/dataset.h"
#include "data/files.h"
#include <sys/stat.h>

enum { MAGIC = 20240520, HEADER = 1024, T = 7, VOCABULARY = 4000 };

static const char *const names[] = {"train.bin",      "val.bin",        "a_train_0.bin",
                                    "a_train_1.bin",  "a_val.bin",      "training.bin",
                                    "one.bin",        "one.json",       "text.txt",
                                    "a_train_0.json", "a_train_1.json", "b_validation.bin"};
static char spec[160];

static inline int end(void **state)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(path_of(names[i]));
    return remove_folder(state);
}

static inline const char *spec_of(const char *kind, const char *name)
{
    snprintf(spec, sizeof spec, "%s:%s%s%s", kind, folder, *name ? "/" : "", name);
    return spec;
}

static inline int token(int file, int64_t i)
{
    return (int)((i * i * 31 + file * 977 + i * 13) % VOCABULARY);
}

/* Writes a token file, with or without llm.c's header. The header may announce another number of
 * tokens. */
static inline void write_tokens(const char *name, int file, int count, int header, int announced)
{
    unsigned char *bytes = calloc(1, HEADER + 2 * (size_t)count + 1), *p = bytes;
    assert_non_null(bytes);
    const int numbers[] = {MAGIC, 1, announced};
    for (int i = 0; header && i < 12; i++)
        p[i] = (unsigned char)(numbers[i / 4] >> 8 * (i % 4));
    p += header ? HEADER : 0;
    for (int i = 0; i < count; i++, p += 2) {
        p[0] = (unsigned char)token(file, i);
        p[1] = (unsigned char)(token(file, i) >> 8);
    }
    spill(name, bytes, (size_t)(p - bytes));
    free(bytes);
}

static inline clt_dataset *open_tokens(const char *kind, const char *name, const char *split,
                                       int64_t sequence, int64_t classes)
{
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.sequence = sequence;
    options.classes = classes;
    return expect_open(spec_of(kind, name), split, &options);
}

/* Checks the batches of one pass in order. Sample s must be the window at `begin[s]` of its
 * file. */
static inline void expect_windows(clt_dataset *d, int64_t t, const int *file, const int64_t *begin)
{
    clt_loader_desc desc;
    clt_loader *loader;
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = 3;
    desc.shuffle = 0;
    desc.end_epoch = 1;
    assert_int_equal(clt_loader_create(&desc, &loader), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "targets", CLT_I32, NULL), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "tokens", CLT_I32, NULL), CLT_OK);
    assert_int_equal(clt_loader_start(loader), CLT_OK);
    clt_batch batch = {.struct_size = sizeof batch};
    int64_t seen = 0;
    for (;;) {
        assert_int_equal(clt_loader_next(loader, &batch), CLT_OK);
        if (batch.slot < 0)
            break;
        const int32_t *targets = clt_loader_memory(loader, batch.slot, 0, 0);
        const int32_t *tokens = clt_loader_memory(loader, batch.slot, 0, 1);
        for (int64_t s = 0; s < batch.count; s++, seen++)
            for (int64_t i = 0; i < t; i++) {
                assert_int_equal(tokens[s * t + i], token(file[seen], begin[seen] + i));
                assert_int_equal(targets[s * t + i], token(file[seen], begin[seen] + i + 1));
            }
        assert_int_equal(clt_loader_release(loader, batch.slot), CLT_OK);
    }
    assert_int_equal(seen, clt_dataset_count(d));
    clt_loader_free(loader);
}

#endif
