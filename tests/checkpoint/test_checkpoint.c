/* Checkpoint folders: the round trip, which checkpoints are kept, and the messages about damaged
 * ones. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "checkpoint/run.h"
#include "checkpoint/scratch.h"

static void a_run_comes_back(void **state)
{
    (void)state;
    const char *dir = in_scratch("a/b/run");
    const clt_section sections[] = {
        {"note", "two\nlines, \"quoted\" \xc3\xa4", 0},
        {CLT_SECTION_FROZEN, " {\"split\": [128, 128], \"rate\": 0.1, \"z\": null, \"a\": 1e-320} ",
         1},
        {"number", "9223372036854775807", 1},
        {"empty", "", 0},
    };
    clt_checkpoint_desc desc;
    run_describe(&desc, 1234);
    desc.run.seed = INT64_MIN;
    desc.run.epoch = 3;
    desc.run.batch = 17;
    desc.run.sample = 17 * 256;
    desc.sections = sections;
    desc.section_count = 4;
    assert_int_equal(clt_checkpoint_save(dir, &desc), CLT_OK);
    clt_checkpoint *c;
    assert_int_equal(clt_checkpoint_open(dir, &c), CLT_OK);
    run_check(c, 1234);
    const clt_run_state *run = clt_checkpoint_run(c);
    assert_true(run->seed == INT64_MIN);
    assert_int_equal(run->epoch, 3);
    assert_int_equal(run->batch, 17);
    assert_int_equal(run->sample, 17 * 256);
    for (int i = 0; i < 4; i++) {
        const clt_section *section = clt_checkpoint_section(c, sections[i].name);
        assert_ptr_equal(section, clt_checkpoint_section_at(c, i));
        assert_int_equal(section->is_json, sections[i].is_json);
        if (i != 1)
            assert_string_equal(section->text, sections[i].text);
    }
    assert_int_equal(
        strncmp(clt_checkpoint_section(c, "frozen")->text, "{\"split\":[128,128],\"rate\":0.1", 29),
        0);
    assert_null(clt_checkpoint_section(c, "none"));
    assert_null(clt_checkpoint_section_at(c, 4));
    assert_null(clt_checkpoint_section_at(c, -1));
    assert_string_equal(clt_tensors_metadata(clt_checkpoint_model(c), "format"), "pt");
    clt_checkpoint_close(c);
}

static void the_highest_step_is_found(void **state)
{
    (void)state;
    const char *dir = in_scratch("find");
    char want[1024], slashes[1100], found[1024];
    clt_checkpoint *c;
    assert_int_equal(clt_checkpoint_open(dir, &c), CLT_NOT_FOUND);
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(clt_checkpoint_open(dir, &c), CLT_NOT_FOUND);
    assert_message_has("holds no checkpoint");
    run_save(dir, 9, 0);
    run_save(dir, 100000000, 0);
    run_save(dir, 99999999, 0);
    snprintf(want, sizeof want, "%s/step-100000000", dir);
    snprintf(slashes, sizeof slashes, "%s///", dir);
    assert_int_equal(clt_checkpoint_find(slashes, sizeof found, found), CLT_OK);
    assert_string_equal(found, want);
    assert_int_equal(clt_checkpoint_find(dir, (int64_t)strlen(want), found), CLT_INVALID_ARGUMENT);
    snprintf(slashes, sizeof slashes, "%s/step-00000009/", dir);
    assert_int_equal(clt_checkpoint_open(slashes, &c), CLT_OK);
    run_check(c, 9);
    clt_checkpoint_close(c);
    /* A checkpoint under a free name is valid. A checkpoint under the name of another step is
     * not. */
    assert_int_equal(rename(want, in_scratch("best")), 0);
    assert_int_equal(clt_checkpoint_open(in_scratch("best"), &c), CLT_OK);
    run_check(c, 100000000);
    clt_checkpoint_close(c);
    snprintf(want, sizeof want, "%s/step-00000010", dir);
    assert_int_equal(rename(in_scratch("best"), want), 0);
    assert_int_equal(clt_checkpoint_open(want, &c), CLT_FORMAT);
    assert_message_has("state.json: it is of step 100000000");
    assert_message_has("the newest intact one before it is");
    assert_message_has("find/step-00000009");
}

static void only_older_ones_are_deleted(void **state)
{
    (void)state;
    char dir[512];
    snprintf(dir, sizeof dir, "%s/keep", scratch);
    for (int step = 1; step <= 6; step++)
        run_save(dir, step * 10, 3);
    assert_string_equal(run_list(dir), "step-00000040 step-00000050 step-00000060 ");
    /* Return to an earlier step, as after --resume from there. Later checkpoints are kept, since
     * they may be wanted. */
    run_save(dir, 45, 2);
    assert_string_equal(run_list(dir), "step-00000040 step-00000045 step-00000050 step-00000060 ");
    run_save(dir, 55, 1);
    assert_string_equal(run_list(dir), "step-00000055 step-00000060 ");
    run_save(dir, 70, 0);
    assert_string_equal(run_list(dir), "step-00000055 step-00000060 step-00000070 ");
    /* The same step again replaces its checkpoint. */
    clt_checkpoint_desc desc;
    run_describe(&desc, 70);
    desc.run.seed = 5;
    desc.keep = 2;
    assert_int_equal(clt_checkpoint_save(dir, &desc), CLT_OK);
    assert_string_equal(run_list(dir), "step-00000060 step-00000070 ");
    clt_checkpoint *c;
    assert_int_equal(clt_checkpoint_open(dir, &c), CLT_OK);
    assert_int_equal(clt_checkpoint_run(c)->seed, 5);
    clt_checkpoint_close(c);
}

static void leftovers_are_removed_and_strangers_left(void **state)
{
    (void)state;
    char dir[512], path[600];
    snprintf(dir, sizeof dir, "%s/leftovers", scratch);
    run_save(dir, 1, 0);
    snprintf(path, sizeof path, "%s/.tmp-step-00000002", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/.tmp-step-00000002/model.safetensors", dir);
    put_file(path, "half", 4);
    snprintf(path, sizeof path, "%s/.tmp-link", dir);
    assert_int_equal(symlink(dir, path), 0);
    snprintf(path, sizeof path, "%s/step-notes.txt", dir);
    put_file(path, "mine", 4);
    assert_string_equal(run_list(dir),
                        ".tmp-link .tmp-step-00000002 step-00000001 step-notes.txt ");
    run_save(dir, 2, 1);
    assert_string_equal(run_list(dir), "step-00000002 step-notes.txt ");
}

static void one_displaced_by_a_killed_save_is_found(void **state)
{
    (void)state;
    char dir[512], path[600], old[600];
    snprintf(dir, sizeof dir, "%s/displaced", scratch);
    run_save(dir, 1, 0);
    run_save(dir, 2, 0);
    snprintf(path, sizeof path, "%s/step-00000002", dir);
    snprintf(old, sizeof old, "%s/.old-step-00000002", dir);
    assert_int_equal(rename(path, old), 0);
    clt_checkpoint *c;
    assert_int_equal(clt_checkpoint_open(dir, &c), CLT_OK);
    run_check(c, 2);
    assert_string_equal(clt_checkpoint_path(c), old);
    clt_checkpoint_close(c);
    run_save(dir, 3, 0);
    assert_string_equal(run_list(dir), "step-00000001 step-00000003 ");
}

/* Replaces the first `from` in a file by `to`, which has the same length. */
static void edit(const char *path, const char *from, const char *to)
{
    size_t bytes;
    unsigned char *data = get_file(path, &bytes);
    char *at = memmem(data, bytes, from, strlen(from));
    assert_non_null(at);
    memcpy(at, to, strlen(to));
    put_file(path, data, bytes);
    free(data);
}

/* Opening a pipe would wait for its writer. */
static void a_pipe_in_place_of_a_file_is_damage(void **state)
{
    (void)state;
    static const char *const files[] = {"state.json", "model.safetensors"};
    char dir[512], path[700];
    snprintf(dir, sizeof dir, "%s/pipes", scratch);
    run_save(dir, 10, 0);
    for (int i = 0; i < 2; i++) {
        run_save(dir, 20, 0);
        snprintf(path, sizeof path, "%s/step-00000020/%s", dir, files[i]);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        clt_checkpoint *c = NULL;
        alarm(20);
        assert_int_equal(clt_checkpoint_open(dir, &c), CLT_FORMAT);
        alarm(0);
        assert_message_has(files[i]);
        assert_message_has("the newest intact one before it is ");
    }
}

static void damage_is_refused_by_name_and_an_intact_one_offered(void **state)
{
    (void)state;
    static const struct {
        const char *file, *from,
            *to; /* `from` NULL: cut off the last byte; `to` NULL: remove the file */
        clt_status status;
        const char *message;
    } cases[] = {
        {"model.safetensors", NULL, "", CLT_FORMAT, "model.safetensors: it has "},
        {"model.safetensors", NULL, NULL, CLT_FORMAT, "model.safetensors: it is missing"},
        {"model.safetensors", "F32", "I32", CLT_FORMAT, "model.safetensors: its content"},
        {"model.safetensors", "F32", "QQQ", CLT_FORMAT, "unknown dtype QQQ"},
        {"optimizer.safetensors", NULL, "", CLT_FORMAT, "optimizer.safetensors: it has "},
        {"optimizer.safetensors", NULL, NULL, CLT_FORMAT, "optimizer.safetensors: it is missing"},
        {"optimizer.safetensors", "avg", "avh", CLT_FORMAT, "optimizer.safetensors: its content"},
        {"state.json", NULL, "", CLT_OK, ""}, /* the last byte is a newline */
        {"state.json", NULL, NULL, CLT_FORMAT, "state.json: it is missing"},
        {"state.json", "\"batch\": 0", "\"batch\": 1", CLT_FORMAT, "state.json: its values do not"},
        {"state.json", "{", " ", CLT_FORMAT, "state.json: it is not valid JSON"},
        {"state.json", "xxh3_64", "xxh3_65", CLT_FORMAT, "state.json: "},
        {"state.json", "format", "fromat", CLT_FORMAT, "not the state of a checkpoint"},
        {"state.json", "\"version\": 1", "\"version\": 2", CLT_UNSUPPORTED, "it has version 2"},
    };
    char dir[512], path[700], step[600];
    snprintf(dir, sizeof dir, "%s/damage", scratch);
    snprintf(step, sizeof step, "%s/step-00000030", dir);
    run_save(dir, 10, 0);
    run_save(dir, 20, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_save(dir, 30, 0);
        snprintf(path, sizeof path, "%s/%s", step, cases[i].file);
        if (cases[i].from) {
            edit(path, cases[i].from, cases[i].to);
        } else if (cases[i].to) {
            struct stat info;
            assert_int_equal(stat(path, &info), 0);
            assert_int_equal(truncate(path, info.st_size - 1), 0);
        } else {
            assert_int_equal(unlink(path), 0);
        }
        clt_checkpoint *c = NULL;
        for (int by_step = 0; by_step < 2; by_step++) {
            clt_status status = clt_checkpoint_open(by_step ? step : dir, &c);
            if (status != cases[i].status)
                fail_msg("case %zu: %s: %s", i, clt_status_name(status), clt_error_message());
            if (status == CLT_OK) {
                run_check(c, 30);
                clt_checkpoint_close(c);
                c = NULL;
                continue;
            }
            assert_null(c);
            assert_message_has(step);
            assert_message_has(cases[i].message);
            assert_message_has("the newest intact one before it is ");
            assert_message_has("damage/step-00000020");
        }
        /* A newer version is not damage, so the search does not skip it. */
        char found[700], wanted[700];
        snprintf(wanted, sizeof wanted, "%s/step-000000%d", dir, cases[i].status ? 20 : 30);
        const int passes = cases[i].status != CLT_UNSUPPORTED;
        assert_int_equal(clt_checkpoint_find_intact(dir, sizeof found, found),
                         passes ? CLT_OK : CLT_UNSUPPORTED);
        if (passes)
            assert_string_equal(found, wanted);
    }
    /* If step 20 is damaged too, step 10 is offered. If that is damaged, there is none. */
    snprintf(path, sizeof path, "%s/step-00000020/state.json", dir);
    put_file(path, "{}", 2);
    clt_checkpoint *c;
    assert_int_equal(clt_checkpoint_open(dir, &c), CLT_UNSUPPORTED);
    assert_message_has("damage/step-00000010");
    snprintf(path, sizeof path, "%s/step-00000010/model.safetensors", dir);
    assert_int_equal(truncate(path, 3), 0);
    assert_int_equal(clt_checkpoint_open(dir, &c), CLT_UNSUPPORTED);
    assert_message_has("there is no intact one before it");
    for (int s = 20; s <= 30; s += 10) {
        snprintf(path, sizeof path, "%s/step-000000%d/state.json", dir, s);
        put_file(path, "", 0);
    }
    assert_int_equal(clt_checkpoint_find_intact(dir, sizeof path, path), CLT_FORMAT);
    assert_message_has("no checkpoint is intact; checkpoint ");
    assert_int_equal(clt_checkpoint_find_intact(scratch, 3, path), CLT_NOT_FOUND);
}

/* A change of any single bit of any file is noticed. */
static void every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
    char dir[512], path[600];
    snprintf(dir, sizeof dir, "%s/flip", scratch);
    run_save(dir, 1, 0);
    int harmless = 0;
    for (int i = 0; i < 3; i++) {
        size_t bytes;
        snprintf(path, sizeof path, "%s/step-00000001/%s", dir, files[i]);
        unsigned char *data = get_file(path, &bytes);
        for (size_t at = 0; at < bytes; at += 3) {
            data[at] ^= (unsigned char)(1 << at % 8);
            put_file(path, data, bytes);
            clt_checkpoint *c;
            clt_status status = clt_checkpoint_open(dir, &c);
            if (status == CLT_OK) {
                /* In state.json one kind of space may replace another. */
                assert_int_equal(i, 2);
                run_check(c, 1);
                clt_checkpoint_close(c);
                harmless++;
            } else {
                assert_message_has("step-00000001");
            }
            data[at] ^= (unsigned char)(1 << at % 8);
        }
        put_file(path, data, bytes);
        free(data);
    }
    assert_in_range(harmless, 0, 40);
}

static void a_full_disk_keeps_what_was_there(void **state)
{
    (void)state;
    char dir[512];
    snprintf(dir, sizeof dir, "%s/full", scratch);
    run_save(dir, 1, 1);
    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    clt_checkpoint_desc desc;
    run_describe(&desc, 2);
    /* The note makes state.json the largest file, so each of the three files fails at some
     * limit. */
    char note[8192];
    memset(note, 'x', sizeof note - 1);
    note[sizeof note - 1] = '\0';
    const clt_section section = {"note", note, 0};
    desc.sections = &section;
    desc.section_count = 1;
    desc.keep = 1;
    int failed_in[3] = {0};
    for (rlim_t most = 0; most < 8192; most += 101) {
        limit.rlim_cur = most;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        clt_status status = clt_checkpoint_save(dir, &desc);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, CLT_IO);
        assert_message_has("File too large");
        assert_message_has("full/step-00000002 was not saved");
        failed_in[0] += strstr(clt_error_message(), "write model.safetensors") != NULL;
        failed_in[1] += strstr(clt_error_message(), "write optimizer.safetensors") != NULL;
        failed_in[2] += strstr(clt_error_message(), "write state.json") != NULL;
        assert_string_equal(run_list(dir), "step-00000001 ");
        clt_checkpoint *c;
        assert_int_equal(clt_checkpoint_open(dir, &c), CLT_OK);
        run_check(c, 1);
        clt_checkpoint_close(c);
    }
    signal(SIGXFSZ, handler);
    for (int i = 0; i < 3; i++)
        assert_in_range(failed_in[i], 1, 100);
}

static void what_cannot_be_saved_is_refused(void **state)
{
    (void)state;
    char dir[512], inner[600];
    clt_checkpoint_desc desc;
    snprintf(dir, sizeof dir, "%s/refuse", scratch);
    run_save(dir, 1, 1);
    run_describe(&desc, 2);
    desc.keep = 1;
    snprintf(inner, sizeof inner, "%s/step-00000001/state.json/below", dir);
    assert_int_equal(clt_checkpoint_save(inner, &desc), CLT_IO);
    assert_message_has("Not a directory");
    assert_int_equal(clt_checkpoint_save("/proc/none", &desc), CLT_IO);
    assert_message_has("cannot make the folder /proc/none");
    static const struct {
        clt_section sections[2];
        const char *message;
    } bad[] = {
        {{{"a", "1", 1}, {"a", "2", 1}}, "two sections are called a"},
        {{{"a", "1", 1}, {"b", "{", 1}}, "section b is not JSON"},
        {{{"a", "1", 1}, {"b", "NaN", 1}}, "section b is not JSON"},
        {{{"a", "1", 1}, {"b", "\xff", 0}}, "not UTF-8"},
        {{{"a", "1", 1}, {"\xff", "b", 0}}, "not UTF-8"},
        {{{"a", "1", 1}, {NULL, "b", 0}}, "no name"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        desc.sections = bad[i].sections;
        desc.section_count = 2;
        assert_int_equal(clt_checkpoint_save(dir, &desc), CLT_INVALID_ARGUMENT);
        assert_message_has(bad[i].message);
    }
    desc.section_count = 0;
    desc.run.batch = -1;
    assert_int_equal(clt_checkpoint_save(dir, &desc), CLT_INVALID_ARGUMENT);
    desc.run.batch = 0;
    desc.run.step = INT64_MAX;
    assert_int_equal(clt_checkpoint_save(dir, &desc), CLT_INVALID_ARGUMENT);
    desc.run.step = 2;
    desc.model_count = 2;
    clt_tensor twice[2] = {desc.model[0], desc.model[0]};
    desc.model = twice;
    assert_int_equal(clt_checkpoint_save(dir, &desc), CLT_INVALID_ARGUMENT);
    assert_message_has("model.safetensors: two tensors are called");
    desc.struct_size = 0;
    assert_int_equal(clt_checkpoint_save(dir, &desc), CLT_INVALID_ARGUMENT);
    assert_string_equal(run_list(dir), "step-00000001 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_comes_back),
        cmocka_unit_test(the_highest_step_is_found),
        cmocka_unit_test(only_older_ones_are_deleted),
        cmocka_unit_test(leftovers_are_removed_and_strangers_left),
        cmocka_unit_test(one_displaced_by_a_killed_save_is_found),
        cmocka_unit_test(a_pipe_in_place_of_a_file_is_damage),
        cmocka_unit_test(damage_is_refused_by_name_and_an_intact_one_offered),
        cmocka_unit_test(every_flipped_bit_is_noticed),
        cmocka_unit_test(a_full_disk_keeps_what_was_there),
        cmocka_unit_test(what_cannot_be_saved_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
