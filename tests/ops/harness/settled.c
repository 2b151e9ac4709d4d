#include "ops/harness/settled.h"

struct op_settled op_settled;

const char *op_settled_path(void)
{
    const char *path = getenv("CLT_TEST_SETTLED");
    return getenv("CLT_TEST_ALL") || !path || !*path ? NULL : path;
}

/* The caller frees the text. NULL: there is no such file. */
static char *op_read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *text = calloc(1, *bytes + sizeof(uint64_t));
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *bytes, file), *bytes);
    fclose(file);
    return text;
}

void op_settled_read(uint64_t device)
{
    const char *path = op_settled_path(), *name = path ? strrchr(path, '/') : NULL;
    char code[4096];
    size_t bytes = 0;
    if (!name)
        return;
    snprintf(code, sizeof code, "%.*s/code", (int)(name - path), path);
    char *text = op_read_file(code, &bytes);
    assert_non_null(text);
    op_settled.code = clt_hash(text, bytes, device);
    free(text);
    op_settled.old = (uint64_t *)op_read_file(path, &bytes);
    op_settled.n_old = op_settled.old ? (int)(bytes / sizeof(uint64_t)) : 0;
}

void op_settled_write(void)
{
    const char *path = op_settled_path();
    char fresh[4096];
    if (!path)
        return;
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "wb");
    assert_non_null(file);
    fwrite(op_settled.now, sizeof(uint64_t), (size_t)op_settled.n_now, file);
    assert_int_equal(fclose(file), 0);
    if (!clt_test_oclgrind())
        assert_int_equal(rename(fresh, path), 0);
    print_message("%d plans are as they were and did not run again, %d ran\n",
                  op_settled.passed_over, op_settled.n_now - op_settled.passed_over);
    free(op_settled.old);
    free(op_settled.now);
}

bool op_is_settled(uint64_t key)
{
    for (int i = 0; i < op_settled.n_old; i++)
        if (op_settled.old[i] == key) {
            op_settled.passed_over++;
            return true;
        }
    return false;
}

void op_settle(uint64_t key)
{
    op_settled.now =
        realloc(op_settled.now, (size_t)(op_settled.n_now + 1) * sizeof *op_settled.now);
    assert_non_null(op_settled.now);
    op_settled.now[op_settled.n_now++] = key;
}
