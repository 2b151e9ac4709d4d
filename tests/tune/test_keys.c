/* Tuning keys: the same where nothing changed that a measurement depends on, others where it did.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/program/kernel_source.h"
#include "device/program/source_tokens.h"
#include "device/program/tuning_file.h"
#include "plan/plan.h"
#include "tune/variant_sets.h"
#include <cltrain/ops.h>
#include <cltrain/unstable.h>

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

static const char kernel[] = "#define SUM(a, b) ((a) + (b))\n"
                             "#if WIDTH > 4\n"
                             "#define HALF (1)\n"
                             "#endif\n"
                             "kernel void add(global float *x) { x[0] += SUM(1.5e+3f, 'a'); }\n";

static void layout_of_text_is_nothing(void **state)
{
    static const char *const same[] = {
        "/* Adds. */\n#define SUM( a,b ) ( (a)+(b) ) // of two\n\n#if WIDTH>4\n#define HALF (1)\n"
        "#endif\nkernel void add(global float*x)\n{\n    x[0] += SUM(1.5e+3f, 'a');\n}",
        "#  define SUM(a, b) \\\n    ((a) + (b))\n#if WIDTH > /* at\nleast */ 4\n#define HALF (1)\n"
        "#endif\nkernel void add(global float *x) { x[0] += SUM(1.5e+3f, 'a'); } /* end"};
    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_true(clt_tokens_hash(kernel) == clt_tokens_hash(same[i]));
}

static void every_token_counts(void **state)
{
    /* What is replaced, and by what. */
    static const char *const changes[][2] = {{"x[0] +=", "x[0] + ="},
                                             {"1.5e+3f", "1.5e+4f"},
                                             {"1.5e+3f", "1.5e +3f"},
                                             {"'a'", "'b'"},
                                             {"'a'", "' a'"},
                                             {"add", "add1"},
                                             {"SUM(a, b)", "SUM (a)"},
                                             {"HALF (1)", "HALF(1)"},
                                             {"#endif\n", "#endif\n;"},
                                             {"4\n#define HALF (1)\n", "4 HALF (1)\n"},
                                             {"WIDTH > 4", "WIDTH >> 4"}};
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const char *at = strstr(kernel, changes[i][0]);
        char other[sizeof kernel + 32];
        assert_non_null(at);
        snprintf(other, sizeof other, "%.*s%s%s", (int)(at - kernel), kernel, changes[i][1],
                 at + strlen(changes[i][0]));
        if (clt_tokens_hash(other) == clt_tokens_hash(kernel))
            fail_msg("%s instead of %s changes nothing", changes[i][1], changes[i][0]);
    }
}

static void finds_identifiers(void **state)
{
    (void)state;
    assert_true(clt_has_token(kernel, "SUM") && clt_has_token(kernel, "global"));
    assert_false(clt_has_token(kernel, "SU") || clt_has_token(kernel, "e"));
    assert_false(clt_has_token("/* CLT_HAS(f) */ int f; // CLT_HAS(g)", "CLT_HAS"));
    assert_true(clt_has_token("#if CLT_HAS(f)\n#endif", "CLT_HAS"));
}

static void files_have_hashes_of_their_own(void **state)
{
    uint64_t seen[512];
    int count = 0;
    (void)state;
    for (const clt_kernel_source *s = clt_kernel_sources; s->name; s++) {
        const uint64_t hash = clt_source_tokens(s->name);
        if (!strstr(s->name, ".cl") || strstr(s->name, ".clh")) {
            assert_true(hash == 0);
            continue;
        }
        assert_true(hash && clt_source_known(hash) && !clt_source_known(hash ^ 1));
        for (int i = 0; i < count; i++)
            assert_true(seen[i] != hash);
        seen[count++] = hash;
        /* What a file includes is of it. */
        if (strstr(s->text, "#include"))
            assert_true(hash != clt_tokens_hash(s->text));
    }
    assert_true(count > 50);
    assert_true(clt_source_tokens("none/none.cl") == 0 && !clt_source_known(0));
}

/* Whether the entry's variant was chosen from a set of variants that its operator still has. */
static bool is_of_a_set(const clt_tuning_entry *e)
{
    int count;
    const clt_op *const *ops = clt_ops(&count);
    for (int i = 0; i < count; i++) {
        if (strcmp(ops[i]->name, e->op) != 0)
            continue;
        for (unsigned set = 1; set < 1u << variant_count(ops[i]); set++)
            if (variant_set_hash(ops[i], set) == e->variants)
                return true;
    }
    return false;
}

/* Entries of kernels or variants that have changed since are dead weight: measure them again, or
 * delete them. CONTRIBUTING.md says what to do if only names have changed. */
static void shipped_records_are_of_these_kernels(void **state)
{
    int records = 0;
    (void)state;
    for (const clt_kernel_source *s = clt_kernel_sources; s->name; s++) {
        clt_tuning_record record;
        if (strncmp(s->name, "tuning/", 7) != 0)
            continue;
        records++;
        ok(clt_tuning_from_json(s->text, &record));
        assert_true(record.count && record.compute_units && *record.platform);
        for (int i = 0; i < record.count; i++) {
            const clt_tuning_entry *e = &record.entries[i];
            char choice[96];
            snprintf(choice, sizeof choice, "%s=%s", e->op, e->variant);
            ok(clt_variants_check(choice));
            for (int k = 0; k < CLT_TUNING_SOURCES && e->sources[k]; k++)
                if (!clt_source_known(e->sources[k]))
                    fail_msg("%s: %s for %s: of a kernel that has changed", s->name, e->op,
                             e->shape_class);
            if (!is_of_a_set(e))
                fail_msg("%s: %s for %s: of variants that have changed", s->name, e->op,
                         e->shape_class);
            assert_true(e->sources[0] != 0);
        }
        clt_tuning_free(&record);
    }
    assert_true(records > 0);
}

static void foreign_texts_are_refused(void **state)
{
    (void)state;
#define HEAD "{\"version\": 5, \"platform\": \"p\", \"device\": \"d\", \"driver\": \"v\", "
#define ENTRY(OP, KEY, SECONDS)                                                                    \
    HEAD "\"compute_units\": 2, \"entries\": [{\"op\": \"" OP "\", \"key\": \"" KEY                \
         "\", \"shape\": \"s\", \"variant\": \"v\", \"options\": \"\", \"rejected\": \"\", "       \
         "\"sources\": [\"0a\"], \"variants\": \"0\", \"seconds\": " SECONDS "}]}"
    static const char *const texts[] = {
        "",
        "[]",
        "{\"version\": 3, \"device\": \"d\", \"driver\": \"v\", \"entries\": []}",
        HEAD "\"compute_units\": 2, \"entries\": {}}",
        HEAD "\"entries\": []}",
        "{\"version\": 5, \"platform\": 4, \"device\": \"d\", \"driver\": \"v\", "
        "\"compute_units\": 2, \"entries\": []}",
        HEAD "\"compute_units\": 2, \"entries\": [{\"op\": \"a\"}]}",
        ENTRY("a name that is much longer than thirty-two characters", "1", "1"),
        ENTRY("a", "1", "-1"),
        ENTRY("a", "0", "1"),
        ENTRY("a", "x", "1"),
        ENTRY("a", "11111111111111111", "1"),
    };
    clt_tuning_record record;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_int_equal(clt_tuning_from_json(texts[i], &record), CLT_FORMAT);
    assert_int_equal(clt_tuning_from_json(ENTRY("a", "1f", "1"), &record), CLT_OK);
    assert_string_equal(record.device, "d");
    assert_int_equal(record.compute_units, 2);
    assert_true(record.entries[0].key == 0x1f && record.entries[0].sources[0] == 0xa);
    clt_tuning_free(&record);
}

/* --- classes of shapes ------------------------------------------------------------------------ */

typedef struct layer {
    const char *name;
    int64_t size, channels, batch;
    int stride, padding;
    bool relu, bias;
    clt_dtype precision;
    clt_device_kind kind;
    int width;
} layer;

static clt_caps caps_of(clt_device_kind kind, int width)
{
    return (clt_caps){.name = "device",
                      .kind = kind,
                      .compute_units = 2,
                      .vector_width = width,
                      .vector_registers = 16,
                      .memory_bytes = (int64_t)1 << 33,
                      .max_alloc_bytes = (int64_t)1 << 32,
                      .local_bytes = 1 << 16,
                      .max_work_group = 256,
                      .align_bytes = 128};
}

/* The key of the convolution of a model of this one layer; `text`: the class for readers. */
static uint64_t key_of(const layer *l, char text[64])
{
    const clt_caps caps = caps_of(l->kind, l->width);
    const int64_t dims[] = {CLT_BATCH, 3, l->size, l->size}, w[] = {l->channels, 3, 3, 3};
    const clt_init init = {CLT_INIT_UNIFORM, 1, 0};
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_PREDICT, l->batch);
    clt_conv2d_options conv;
    clt_graph *graph;
    clt_buckets buckets;
    clt_plan *plan;
    uint64_t key = 0;
    clt_conv2d_options_init(&conv);
    conv.stride[0] = conv.stride[1] = l->stride;
    conv.padding[0] = conv.padding[1] = l->padding;
    options.precision = l->precision;
    ok(clt_graph_create(&graph));
    clt_value *y = clt_conv2d(clt_input(graph, "x", CLT_F32, 4, dims),
                              clt_parameter(graph, l->name, 4, w, init),
                              l->bias ? clt_parameter(graph, "bias", 1, w, init) : NULL, &conv);
    clt_output(l->relu ? clt_relu(y) : y, "y");
    ok(clt_graph_status(graph));
    ok(clt_buckets_create(graph, &sizes, &buckets));
    ok(clt_plan_create(graph, &buckets, &caps, NULL, &options, &plan));
    for (int i = 0; i < plan->n_nodes; i++)
        if (!strcmp(plan->nodes[i].node->op->name, "conv2d")) {
            key = plan->nodes[i].key;
            memcpy(text, plan->nodes[i].shape_class, sizeof plan->nodes[i].shape_class);
        }
    clt_plan_destroy(plan);
    clt_buckets_free(&buckets);
    clt_graph_destroy(graph);
    assert_true(key != 0);
    return key;
}

static void keys_are_of_shapes(void **state)
{
    static const layer first = {"w", 12, 8, 64, 1, 0, false, false, CLT_F32, CLT_KIND_CPU, 8};
    layer others[11];
    uint64_t keys[11];
    char text[64], same[64];
    (void)state;
    const uint64_t key = key_of(&first, text);
    /* Shipped records and checkpoints have such keys: they must stay. */
    if (key != UINT64_C(0xae4d72d72bd0fec6))
        fail_msg("the key of a layer has become %016llx", (unsigned long long)key);
    layer l = first;
    l.name = "another.name";
    l.batch = 50; /* of the same power of two */
    assert_true(key_of(&l, same) == key);
    assert_string_equal(text, same);

    for (int i = 0; i < 11; i++)
        others[i] = first;
    others[0].size = 13;
    others[1].channels = 9;
    others[2].batch = 65;
    others[3].stride = 2;
    others[4].padding = 1;
    others[5].relu = true;
    others[6].bias = true;
    others[7].precision = CLT_F16;
    others[8].precision = CLT_BF16;
    others[9].kind = CLT_KIND_GPU;
    others[10].width = 16; /* the layout's lanes */
    for (int i = 0; i < 11; i++) {
        keys[i] = key_of(&others[i], same);
        assert_true(keys[i] != key);
        for (int k = 0; k < i; k++)
            assert_true(keys[k] != keys[i]);
    }
}

/* --- former names ----------------------------------------------------------------------------- */

/* Returns the plan of one fused element-wise node on a CPU; *pn is the node. */
static clt_plan *fused_plan(const clt_caps *caps, const clt_tuning_record *record,
                            const clt_plan_node **pn)
{
    const int64_t dims[] = {CLT_BATCH, 5};
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    const clt_plan_options options = clt_plan_options_default(CLT_PLAN_PREDICT, 64);
    clt_graph *graph;
    clt_buckets buckets;
    clt_plan *plan;
    ok(clt_graph_create(&graph));
    clt_output(clt_scale(clt_tanh(clt_input(graph, "x", CLT_F32, 2, dims)), 2), "y");
    ok(clt_buckets_create(graph, &sizes, &buckets));
    ok(clt_plan_create(graph, &buckets, caps, record, &options, &plan));
    assert_int_equal(plan->n_nodes, 1);
    *pn = &plan->nodes[0];
    assert_string_equal((*pn)->node->op->name, "fused_elementwise");
    clt_buckets_free(&buckets);
    clt_graph_destroy(graph);
    return plan;
}

/* The operator had another name in version 4, so that its keys were others. */
static void former_operators_are_found(void **state)
{
    const clt_device device = {.caps = caps_of(CLT_KIND_CPU, 8)};
    clt_tuning_record record;
    const clt_plan_node *pn;
    char shape[64], entries[512], text[1024];
    (void)state;
    clt_plan *plan = fused_plan(&device.caps, NULL, &pn);
    assert_string_equal(pn->variant->name, "runs_cpu");
    clt_plan_old_class(pn->node, 64, shape);
    clt_plan_destroy(plan);
    snprintf(entries, sizeof entries,
             "{\"version\": 4, \"platform\": \"\", \"device\": \"device\", \"driver\": \"\", "
             "\"compute_units\": 2, \"entries\": [{\"op\": \"map\", \"key\": \"1\", \"shape\": "
             "\"%s\", \"variant\": \"elementwise\", \"options\": \"\", \"rejected\": \"\", "
             "\"sources\": [], \"variants\": \"1\", \"seconds\": 1}]}",
             shape);
    snprintf(text, sizeof text, "{\"kernels\": [%s]}", entries);
    ok(clt_tunings_find(text, &device, &record));
    plan = fused_plan(&device.caps, &record, &pn);
    assert_string_equal(pn->variant->name, "elementwise");
    assert_true(pn->tuned && pn->tuned->key == pn->key);
    clt_plan_destroy(plan);
    clt_tuning_free(&record);
    /* A record of measurements has no use for it. */
    ok(clt_tuning_from_json(entries, &record));
    assert_int_equal(record.count, 0);
    clt_tuning_free(&record);
}

/* Parts of a device have other compute units, and are of its kind. */
static void kinds_are_compared(void **state)
{
    clt_device device = {.caps = caps_of(CLT_KIND_CPU, 8)};
    const char *const text = "{\"kernels\": [{\"version\": 5, \"platform\": \"\", \"device\": "
                             "\"device\", \"driver\": \"\", \"compute_units\": 2, "
                             "\"entries\": []}]}";
    clt_tuning_record record;
    bool have = false;
    (void)state;
    ok(clt_tunings_have_kind(text, &device, &have));
    assert_true(have);
    device.caps.compute_units++;
    ok(clt_tunings_have_kind(text, &device, &have));
    assert_true(have);
    assert_int_equal(clt_tunings_find(text, &device, &record), CLT_NOT_FOUND);
    device.caps.driver[0] = '2';
    ok(clt_tunings_have_kind(text, &device, &have));
    assert_false(have);
    assert_int_equal(clt_tunings_have_kind("[]", &device, &have), CLT_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_of_text_is_nothing),
        cmocka_unit_test(every_token_counts),
        cmocka_unit_test(finds_identifiers),
        cmocka_unit_test(files_have_hashes_of_their_own),
        cmocka_unit_test(shipped_records_are_of_these_kernels),
        cmocka_unit_test(foreign_texts_are_refused),
        cmocka_unit_test(keys_are_of_shapes),
        cmocka_unit_test(former_operators_are_found),
        cmocka_unit_test(kinds_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
