/* A checkpoint that commit 4fb8849 wrote, whose choices have texts as keys (version 3): a run that
 * goes on from it takes the same kernels, and writes them down under keys that are numbers. The
 * same for choices of version 4, in which variants have other names. */
#include "train/tuning_lab.h"

#include <jansson.h>

#include "base/blas_sets.h"
#include "goldens/goldens.h"
#include <cltrain/fit.h>
#include <cltrain/models.h>

static char old_run[4096], net[4096];

static clt_graph *build(void)
{
    clt_model_field fields[2];
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = -100};
    clt_graph *g;
    clt_model_images(1, 12, 12, 10, fields);
    ok(clt_graph_create(&g));
    ok(clt_model_build(net, &input, g));
    return g;
}

/* The choices of the checkpoint, as if it had been written on this device. */
static json_t *old_choices(void)
{
    clt_checkpoint *checkpoint;
    ok(clt_checkpoint_open(old_run, &checkpoint));
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_FROZEN);
    assert_non_null(section);
    json_t *choices = json_loads(section->text, 0, NULL);
    clt_checkpoint_close(checkpoint);
    json_t *record = json_array_get(json_object_get(choices, "kernels"), 0);
    assert_int_equal(json_integer_value(json_object_get(record, "version")), 3);
    json_object_set_new(record, "device", json_string(devices[0]->caps.name));
    json_object_set_new(record, "driver", json_string(devices[0]->caps.driver));
    return choices;
}

static json_t *entries_of(json_t *choices)
{
    return json_object_get(json_array_get(json_object_get(choices, "kernels"), 0), "entries");
}

/* Resumes with these choices; what the trainer would save then. */
static char *resume_with(const json_t *choices, lab *l)
{
    char *text = json_dumps(choices, 0), *saved;
    clt_position position;
    int64_t seed;
    clt_trainer_options options = options_of(0);
    options.batch = 64;
    options.optimizer = CLT_MOMENTUM;
    options.frozen = text;
    *l = lab_open(&options);
    ok(clt_trainer_restore(l->trainer, old_run, &position, &seed));
    assert_int_equal(seed, 7);
    ok(clt_choices_to_json(l->trainer->choices, l->trainer->training, l->trainer->evaluation,
                           &saved));
    free(text);
    return saved;
}

/* What versions 3 and 4 call the batch-blocked variants of convolutions. */
static const char *const names[][2] = {{"lanes", "batch_blocked"},
                                       {"lanes_winograd", "batch_blocked_winograd"}};

/* Returns the name of a variant as it is now, or `old` as it was. */
static const char *other_name(const char *variant, bool old)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(variant, names[i][old]))
            return names[i][!old];
    return variant;
}

/* The entry's choice is that of every node of its class; how many there are. */
static int nodes_with(const lab *l, const json_t *entry)
{
    const clt_session *sets[] = {l->trainer->training, l->trainer->evaluation};
    const char *op = json_string_value(json_object_get(entry, "op"));
    const char *shape = json_string_value(json_object_get(entry, "shape"));
    int found = 0;
    for (int s = 0; s < 2; s++) {
        const clt_plan *plan = sets[s]->devices[0].plan;
        for (int i = 0; i < plan->n_nodes; i++) {
            const clt_plan_node *pn = &plan->nodes[i];
            char old[64];
            clt_plan_old_class(pn->node, plan->options.max_batch, old);
            if (strcmp(pn->node->op->name, op) || strcmp(old, shape))
                continue;
            found++;
            assert_non_null(pn->tuned);
            assert_string_equal(
                pn->variant->name,
                other_name(json_string_value(json_object_get(entry, "variant")), false));
            assert_string_equal(pn->tuned->options,
                                json_string_value(json_object_get(entry, "options")));
            assert_true(pn->tuned->key == pn->key);
        }
    }
    return found;
}

static int tiles_in(const json_t *entries)
{
    int found = 0;
    for (size_t i = 0; i < json_array_size(entries); i++)
        found += *json_string_value(json_object_get(json_array_get(entries, i), "options")) != '\0';
    return found;
}

static void choices_are_repeated(void **state)
{
    (void)state;
    json_t *choices = old_choices();
    size_t i;
    json_t *entry;
    lab l;
    char *saved = resume_with(choices, &l);
    json_t *now = json_loads(saved, 0, NULL);
    assert_true(json_array_size(entries_of(choices)) >= 6);
    assert_true(tiles_in(entries_of(choices)) >= 1);
    json_array_foreach(entries_of(choices), i, entry)
    {
        if (!nodes_with(&l, entry))
            fail_msg("no node of %s: %s", json_string_value(json_object_get(entry, "op")),
                     json_string_value(json_object_get(entry, "shape")));
    }
    lab_close(&l);

    /* Of the present version: these choices and those of all other nodes, found by other means,
     * also if there are other variants by now. */
    json_t *record = json_array_get(json_object_get(now, "kernels"), 0);
    assert_int_equal(json_integer_value(json_object_get(record, "version")), 5);
    assert_true(json_array_size(entries_of(now)) > json_array_size(entries_of(choices)));
    json_array_foreach(entries_of(now), i, entry)
    {
        json_object_set_new(entry, "shape", json_string("not a key"));
        json_object_set_new(entry, "variants", json_string("1"));
    }
    char *again = resume_with(now, &l);
    assert_string_equal(again, saved);
    lab_close(&l);
    free(again);

    /* Of version 4. */
    json_t *named = json_deep_copy(now);
    int renamed = 0;
    json_object_set_new(json_array_get(json_object_get(named, "kernels"), 0), "version",
                        json_integer(4));
    json_array_foreach(entries_of(named), i, entry)
    {
        const char *variant = json_string_value(json_object_get(entry, "variant"));
        const char *old = other_name(variant, true);
        renamed += old != variant;
        json_object_set_new(entry, "variant", json_string(old));
    }
    assert_true(renamed >= 2);
    again = resume_with(named, &l);
    assert_string_equal(again, saved);
    lab_close(&l);
    json_decref(named);
    free(saved);
    free(again);

    /* The parameters of CLBlast belong to the device, not to a node. */
    entry = json_deep_copy(json_array_get(entries_of(now), 0));
    json_object_set_new(entry, "op", json_string(CLT_BLAS_OP));
    json_object_set_new(entry, "key", json_sprintf("%d", (int)clt_blas_key(CLT_BLAS_DIRECT)));
    json_array_append_new(entries_of(now), entry);
    saved = resume_with(now, &l);
    assert_non_null(strstr(saved, "\"" CLT_BLAS_OP "\""));
    lab_close(&l);
    free(saved);

    /* They hold for one number of compute units. */
    json_object_set_new(record, "compute_units", json_integer(devices[0]->caps.compute_units + 1));
    saved = resume_with(now, &l);
    json_t *other = json_loads(saved, 0, NULL);
    assert_int_equal(tiles_in(entries_of(other)), 0);
    assert_null(strstr(saved, "\"" CLT_BLAS_OP "\""));
    lab_close(&l);
    free(saved);
    json_decref(other);
    json_decref(now);
    json_decref(choices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_repeated),
    };
    build_graph = build;
    golden_path("old_checkpoint/run", old_run, sizeof old_run);
    golden_path("old_checkpoint/net.json", net, sizeof net);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
