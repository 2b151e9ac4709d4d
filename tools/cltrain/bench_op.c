/* `cltrain bench op`: operators that move more than they compute, on tensors of 64 MiB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "message.h"

enum { ROWS = 16384, COLUMNS = 1024 }; /* 64 MiB of f32 */

static const clt_init uniform = {CLT_INIT_UNIFORM, 1, 0};

static clt_value *matrix(clt_graph *g, const char *name)
{
    const int64_t dims[2] = {CLT_BATCH, COLUMNS};
    return clt_input(g, name, CLT_F32, 2, dims);
}

/* The gradient of what comes of this is wanted. */
static clt_value *trained(clt_graph *g, clt_value *x)
{
    const int64_t one = 1;
    return clt_mul(x, clt_parameter(g, "scale", 1, &one, uniform));
}

static clt_value *images(clt_graph *g, const char *name)
{
    const int64_t dims[4] = {CLT_BATCH, 16, 8, 8};
    return clt_input(g, name, CLT_F32, 4, dims);
}

static clt_value *build_relu(clt_graph *g)
{
    return clt_relu(matrix(g, "x"));
}

static clt_value *build_add(clt_graph *g)
{
    return clt_add(matrix(g, "x"), matrix(g, "y"));
}

static clt_value *build_chain(clt_graph *g)
{
    const int64_t columns = COLUMNS;
    clt_value *bias = clt_parameter(g, "bias", 1, &columns, uniform);
    return clt_mul(clt_gelu_tanh(clt_add(matrix(g, "x"), bias)), matrix(g, "y"));
}

static clt_value *build_softmax(clt_graph *g)
{
    return clt_softmax(trained(g, matrix(g, "x")), 1);
}

static clt_value *build_softmax_channels(clt_graph *g)
{
    return clt_softmax(trained(g, images(g, "x")), 1);
}

static clt_value *build_cross_entropy(clt_graph *g)
{
    const int64_t batch = CLT_BATCH;
    clt_value *sum, *weight;
    clt_cross_entropy(trained(g, matrix(g, "x")), clt_input(g, "labels", CLT_I32, 1, &batch), NULL,
                      &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    return NULL;
}

static clt_value *build_max_pool(clt_graph *g)
{
    return clt_max_pool2d(trained(g, images(g, "x")), NULL);
}

static clt_value *build_avg_pool(clt_graph *g)
{
    return clt_avg_pool2d(trained(g, images(g, "x")), NULL);
}

/* --- reductions: over rows, columns and all elements -------------------------------------------
 */

static const int rows[] = {1}, columns[] = {0};

static clt_value *build_sum_rows(clt_graph *g)
{
    return clt_reduce_sum(matrix(g, "x"), rows, 1, 0);
}

static clt_value *build_sum_columns(clt_graph *g)
{
    return clt_reduce_sum(matrix(g, "x"), columns, 1, 0);
}

static clt_value *build_sum_all(clt_graph *g)
{
    return clt_reduce_sum(matrix(g, "x"), NULL, 0, 0);
}

static clt_value *build_mean_rows(clt_graph *g)
{
    return clt_reduce_mean(trained(g, matrix(g, "x")), rows, 1, 0);
}

static clt_value *build_mean_columns(clt_graph *g)
{
    return clt_reduce_mean(matrix(g, "x"), columns, 1, 0);
}

/* As batch normalisation's: what is kept lies in the middle. */
static clt_value *build_mean_channels(clt_graph *g)
{
    static const int others[] = {0, 2, 3};
    return clt_reduce_mean(images(g, "x"), others, 3, 0);
}

static clt_value *build_max_rows(clt_graph *g)
{
    return clt_reduce_max(trained(g, matrix(g, "x")), rows, 1, 0);
}

static clt_value *build_max_columns(clt_graph *g)
{
    return clt_reduce_max(trained(g, matrix(g, "x")), columns, 1, 0);
}

static clt_value *build_max_all(clt_graph *g)
{
    return clt_reduce_max(matrix(g, "x"), NULL, 0, 0);
}

static clt_value *build_mse(clt_graph *g)
{
    clt_value *sum, *weight;
    clt_mse(trained(g, matrix(g, "x")), matrix(g, "y"), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    return NULL;
}

/* --- moves --------------------------------------------------------------------------------------
 */

static clt_value *build_dropout(clt_graph *g)
{
    return clt_dropout(trained(g, matrix(g, "x")), 0.5);
}

static clt_value *build_concat(clt_graph *g)
{
    clt_value *const parts[] = {trained(g, matrix(g, "x")), matrix(g, "y")};
    return clt_concat(parts, 2, 1);
}

static clt_value *build_pad(clt_graph *g)
{
    static const int64_t around[4] = {0, 0, 1, 1};
    return clt_pad(trained(g, images(g, "x")), around, around, 0);
}

static clt_value *build_slice(clt_graph *g)
{
    static const int64_t start[2] = {0, COLUMNS / 8}, stop[2] = {CLT_TO_END, COLUMNS - COLUMNS / 8};
    return clt_slice(trained(g, matrix(g, "x")), start, stop, NULL);
}

static clt_value *build_slice_steps(clt_graph *g)
{
    static const int64_t start[2] = {0, 0}, stop[2] = {CLT_TO_END, CLT_TO_END}, step[2] = {1, 2};
    return clt_slice(trained(g, matrix(g, "x")), start, stop, step);
}

static clt_value *build_cast_f16(clt_graph *g)
{
    return clt_cast(matrix(g, "x"), CLT_F16);
}

static clt_value *build_cast_bf16(clt_graph *g)
{
    return clt_cast(matrix(g, "x"), CLT_BF16);
}

/* What a data set's bytes go through. */
static clt_value *build_cast_u8(clt_graph *g)
{
    const int64_t dims[2] = {CLT_BATCH, COLUMNS};
    return clt_cast(clt_input(g, "x", CLT_U8, 2, dims), CLT_F32);
}

static clt_value *build_transpose(clt_graph *g)
{
    static const int permutation[] = {1, 0};
    const int64_t dims[2] = {ROWS, COLUMNS};
    return clt_transpose(clt_parameter(g, "x", 2, dims, uniform), permutation);
}

static clt_value *build_silu(clt_graph *g)
{
    return clt_silu(trained(g, matrix(g, "x")));
}

static clt_value *build_swiglu(clt_graph *g)
{
    return clt_swiglu(matrix(g, "x"), matrix(g, "y"));
}

static clt_value *build_exp(clt_graph *g)
{
    return clt_exp(matrix(g, "x"));
}

static clt_value *build_log(clt_graph *g)
{
    return clt_ln(matrix(g, "x"));
}

static clt_value *build_pow(clt_graph *g)
{
    return clt_pow_scalar(matrix(g, "x"), 2.5);
}

static clt_value *build_where(clt_graph *g)
{
    clt_value *x = matrix(g, "x"), *y = matrix(g, "y");
    return clt_where(clt_lt(x, y), x, y);
}

static clt_value *build_chunk(clt_graph *g)
{
    clt_value *parts[2];
    if (clt_chunk(trained(g, matrix(g, "x")), 2, 1, parts) != CLT_OK)
        return NULL;
    return clt_swiglu(parts[0], parts[1]);
}

static clt_value *build_bce(clt_graph *g)
{
    clt_value *sum, *weight;
    clt_bce_with_logits(trained(g, matrix(g, "x")), matrix(g, "y"), NULL, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    return NULL;
}

typedef struct case_row {
    const char *name;
    clt_value *(*build)(clt_graph *g); /* the result; NULL if it declared a loss */
    int training;
    int optimizer; /* of an update; build is NULL then */
} case_row;

static const case_row cases[] = {
    {"relu", build_relu, 0, 0},
    {"add", build_add, 0, 0},
    {"chain", build_chain, 0, 0},
    {"softmax", build_softmax, 1, 0},
    {"softmax_channels", build_softmax_channels, 1, 0},
    {"cross_entropy", build_cross_entropy, 1, 0},
    {"max_pool2d", build_max_pool, 1, 0},
    {"avg_pool2d", build_avg_pool, 1, 0},
    {"sum_rows", build_sum_rows, 0, 0},
    {"sum_columns", build_sum_columns, 0, 0},
    {"sum_all", build_sum_all, 0, 0},
    {"mean_rows", build_mean_rows, 1, 0},
    {"mean_columns", build_mean_columns, 0, 0},
    {"mean_channels", build_mean_channels, 0, 0},
    {"max_rows", build_max_rows, 1, 0},
    {"max_columns", build_max_columns, 1, 0},
    {"max_all", build_max_all, 0, 0},
    {"mse", build_mse, 1, 0},
    {"dropout", build_dropout, 1, 0},
    {"concat", build_concat, 1, 0},
    {"pad", build_pad, 1, 0},
    {"slice", build_slice, 1, 0},
    {"slice_steps", build_slice_steps, 1, 0},
    {"cast_f16", build_cast_f16, 0, 0},
    {"cast_bf16", build_cast_bf16, 0, 0},
    {"cast_u8", build_cast_u8, 0, 0},
    {"transpose", build_transpose, 0, 0},
    {"silu", build_silu, 1, 0},
    {"swiglu", build_swiglu, 0, 0},
    {"exp", build_exp, 0, 0},
    {"log", build_log, 0, 0},
    {"pow", build_pow, 0, 0},
    {"where", build_where, 0, 0},
    {"chunk", build_chunk, 1, 0},
    {"bce_with_logits", build_bce, 1, 0},
    {"sgd", NULL, 1, CLT_SGD},
    {"momentum", NULL, 1, CLT_MOMENTUM},
    {"adam", NULL, 1, CLT_ADAM},
};
enum { CASES = sizeof cases / sizeof *cases };

/* --- nodes ----------------------------------------------------------------------------------- */

static clt_status build_case(const case_row *row, clt_graph **graph)
{
    const clt_status status = clt_graph_create(graph);
    if (status != CLT_OK)
        return status;
    clt_value *y = row->build(*graph);
    if (y && row->training)
        clt_output_gradient(clt_output(y, "result"), "dy");
    else if (y)
        clt_output(y, "result");
    return clt_graph_status(*graph);
}

clt_status bench_op_graph(const char *name, clt_graph **graph, int *training, int64_t *batch)
{
    const case_row *row = cases;
    while (strcmp(row->name, name))
        row++;
    *training = row->training;
    *batch = ROWS;
    return build_case(row, graph);
}

static int measure_nodes(bench_report *r, const case_row *row)
{
    clt_graph *graph = NULL;
    clt_node_time *times = NULL;
    int count = 0, code = 0;
    const clt_status status = build_case(row, &graph);
    if (status != CLT_OK)
        code = library_failure(status);
    if (!code)
        code = bench_graph(r->device, r->settings, graph, row->training, ROWS, &times, &count);
    for (int i = 0; i < count; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s: %.100s", row->name, times[i].op);
        bench_report_row(r, name, &times[i]);
    }
    free(times);
    clt_graph_destroy(graph);
    return code;
}

/* --- updates: kernels of no node, timed in steps as they run -----------------------------------
 */

enum { UPDATE_STEPS = 12, MOST_STEPS = 64 };

/* One parameter of 64 MiB in one bucket; its gradient comes from a sum. */
static clt_status run_steps(clt_graph *graph, bench_device *d, clt_optimizer optimizer,
                            clt_node_time *out)
{
    double rates[2] = {0}; /* of copying, before and after */
    const int64_t dims[2] = {ROWS, COLUMNS};
    clt_value *y = clt_reduce_sum(clt_parameter(graph, "w", 2, dims, uniform), NULL, 0, 0);
    clt_output_gradient(clt_output(y, "result"), "dy");
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = optimizer;
    options.batch = 1;
    clt_store *store = NULL;
    clt_trainer *trainer = NULL;
    clt_profile *profile = NULL;
    const float one = 1e-3f;
    const clt_feed feed = {.name = "dy", .device = 0, .host = &one};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = 1;
    batch.feeds = &feed;
    batch.n_feeds = 1;
    clt_status status = clt_store_create(graph, d->devices, 1, 1, &store);
    if (status == CLT_OK)
        status = clt_trainer_create(graph, store, &options, &trainer);
    if (status == CLT_OK)
        status = clt_profile_start(trainer, &profile);
    if (status == CLT_OK)
        status = clt_meter_rate(d->meter, CLT_LIMIT_COPY, &rates[0]);
    for (int i = 0; status == CLT_OK && i < UPDATE_STEPS; i++)
        status = clt_trainer_step(trainer, &batch, NULL);
    if (status == CLT_OK)
        status = clt_meter_rate(d->meter, CLT_LIMIT_COPY, &rates[1]);
    const clt_profile_record *records;
    int count = 0, n = 0;
    double times[MOST_STEPS];
    if (status == CLT_OK)
        status = clt_profile_read(profile, &records, &count);
    for (int i = 0; status == CLT_OK && i < count; i++)
        if (!strcmp(records[i].node, "") && strstr("sgd momentum adam", records[i].name) &&
            records[i].step >= 2 && n < MOST_STEPS)
            times[n++] = records[i].end - records[i].start;
    if (status == CLT_OK && n) {
        /* Parameters and slots are read and written, gradients read. */
        const int tensors = optimizer == CLT_SGD ? 3 : optimizer == CLT_MOMENTUM ? 5 : 7;
        const double elements = (double)ROWS * COLUMNS;
        *out = (clt_node_time){.bytes = 4 * elements * tensors, .median = bench_median(times, n)};
        out->least = times[0];
        out->most = times[n - 1];
        out->bound = CLT_LIMIT_COPY;
        out->limit = 0.5 * (rates[0] + rates[1]);
        out->share = out->bytes / out->limit / out->median;
    }
    clt_profile_stop(profile);
    clt_trainer_destroy(trainer);
    clt_store_destroy(store);
    return status;
}

static int measure_update(bench_report *r, bench_device *d, const case_row *row)
{
    clt_graph *graph = NULL;
    clt_node_time time = {0};
    clt_status status = clt_graph_create(&graph);
    if (status == CLT_OK)
        status = run_steps(graph, d, (clt_optimizer)row->optimizer, &time);
    clt_graph_destroy(graph);
    if (status != CLT_OK)
        return library_failure(status);
    char name[64];
    snprintf(name, sizeof name, "%s: update", row->name);
    bench_report_row(r, name, &time);
    return 0;
}

/* Of all graphs together, before any is measured. */
static int say_declined(const bench_device *d, const settings *s, const int *chosen)
{
    clt_graph *graphs[CASES] = {NULL};
    clt_measure_options options[CASES] = {{0}};
    int count = 0;
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && s->variant && i < CASES; i++) {
        if (!chosen[i] || !cases[i].build)
            continue;
        options[count] = bench_options(s, cases[i].training, ROWS);
        status = build_case(&cases[i], &graphs[count++]);
    }
    if (status == CLT_OK)
        status =
            bench_say_declined(d->devices[0], (const clt_graph *const *)graphs, options, count);
    for (int i = 0; i < count; i++)
        clt_graph_destroy(graphs[i]);
    return status == CLT_OK ? 0 : name_failure(status);
}

/* --- the subject ------------------------------------------------------------------------------ */

static int find_cases(const settings *s, int *chosen)
{
    const char *names[CASES];
    for (int i = 0; i < CASES; i++) {
        names[i] = cases[i].name;
        chosen[i] = s->n_names == 1;
    }
    for (int k = 1; k < s->n_names; k++) {
        int found = 0;
        for (int i = 0; i < CASES; i++)
            if (!strcmp(s->names[k], names[i]))
                found = chosen[i] = 1;
        if (!found)
            return unknown_name("bench op", s->names[k], names, CASES);
    }
    return 0;
}

int bench_op(const settings *s)
{
    bench_device d = {0};
    bench_report r;
    int chosen[CASES];
    int code = find_cases(s, chosen);
    if (code)
        return code;
    code = bench_device_open(&d, s, 1);
    if (!code)
        code = bench_limits(&d);
    if (!code)
        code = say_declined(&d, s, chosen);
    if (!code) {
        bench_report_begin(&r, &d, s, NULL);
        for (int i = 0; !code && i < CASES; i++)
            if (chosen[i])
                code = cases[i].build ? measure_nodes(&r, &cases[i])
                                      : measure_update(&r, &d, &cases[i]);
        if (!code)
            code = bench_report_end(&r);
    }
    bench_device_close(&d);
    return code;
}
