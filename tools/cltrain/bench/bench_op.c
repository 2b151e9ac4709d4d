/* `cltrain bench op`: operators that move more than they compute, on tensors of 64 MiB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/operators.h>

#include "bench/bench_op.h"
#include "text/message.h"

enum { MOST = 128 }; /* cases */

/* --- nodes ----------------------------------------------------------------------------------- */

static clt_status build_case(const case_row *row, clt_graph **graph)
{
    const clt_status status = clt_graph_create(graph);
    if (status != CLT_OK)
        return status;
    clt_value *y = row->build ? row->build(*graph) : bench_op_build(*graph, row);
    if (y && row->training)
        clt_output_gradient(clt_output(y, "result"), "dy");
    else if (y)
        clt_output(y, "result");
    return clt_graph_status(*graph);
}

clt_status bench_op_graph(const char *name, clt_graph **graph, int *training, int64_t *batch)
{
    const case_row *row = bench_op_cases;
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
    NEXT(code, bench_graph(r->device, r->settings, graph, row->training, ROWS, &times, &count));
    for (int i = 0; i < count; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s: %.100s", row->name, times[i].op);
        bench_report_row(r, name, &times[i]);
    }
    free(times);
    clt_graph_destroy(graph);
    return code;
}

/* --- updates ---------------------------------------------------------------------------------- */

/* Update kernels belong to no node, so they are timed within training steps. The first two
 * steps do not count. */
enum { UPDATE_STEPS = 12, MOST_STEPS = 64 };

/* Runs steps that update one parameter of 64 MiB in one bucket. Its gradient comes from a sum. */
static clt_status run_steps(clt_graph *graph, bench_device *d, clt_optimizer optimizer,
                            clt_node_time *out)
{
    double rates[2] = {0}; /* of copying, before and after */
    const int64_t dims[2] = {ROWS, COLUMNS};
    const clt_init uniform = {CLT_INIT_UNIFORM, 1, 0};
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
    const clt_feed feed = {.name = "dy", .device = 0, .array = CLT_HOST(&one)};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = 1;
    batch.feeds = &feed;
    batch.n_feeds = 1;
    clt_status status = clt_store_create(graph, d->devices, 1, 1, &store);
    NEXT(status, clt_trainer_create(graph, store, &options, &trainer));
    NEXT(status, clt_profile_start(trainer, &profile));
    NEXT(status, clt_meter_rate(d->meter, CLT_LIMIT_COPY, &rates[0]));
    for (int i = 0; status == CLT_OK && i < UPDATE_STEPS; i++)
        status = clt_trainer_step(trainer, &batch, NULL);
    NEXT(status, clt_meter_rate(d->meter, CLT_LIMIT_COPY, &rates[1]));
    const clt_profile_record *records;
    int count = 0, n = 0;
    double times[MOST_STEPS];
    NEXT(status, clt_profile_read(profile, &records, &count));
    for (int i = 0; status == CLT_OK && i < count; i++)
        if (!strcmp(records[i].node, "") &&
            !strcmp(records[i].name, clt_optimizer_name(optimizer)) && records[i].step >= 2 &&
            n < MOST_STEPS) {
            times[n++] = records[i].end - records[i].start;
            out->bytes = records[i].bytes;
        }
    if (status == CLT_OK && n) {
        out->median = bench_median(times, n);
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
    NEXT(status, run_steps(graph, d, row->optimizer, &time));
    clt_graph_destroy(graph);
    if (status != CLT_OK)
        return library_failure(status);
    char name[64];
    snprintf(name, sizeof name, "%s: update", row->name);
    bench_report_row(r, name, &time);
    return 0;
}

/* The cases to measure, and the operators that the user named without a case. */
typedef struct selection {
    case_row rows[MOST];
    char ops[MOST][40];
    int count;
} selection;

static int is_graph(const case_row *row)
{
    return row->op || row->build;
}

/* Prints which variants declined in which graph, before the first measurement. */
static int say_declined(const bench_device *d, const settings *s, const selection *chosen)
{
    clt_graph *graphs[MOST] = {NULL};
    clt_measure_options options[MOST] = {{0}};
    int count = 0;
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && s->variant && i < chosen->count; i++) {
        if (!is_graph(&chosen->rows[i]))
            continue;
        options[count] = bench_options(s, chosen->rows[i].training, ROWS);
        status = build_case(&chosen->rows[i], &graphs[count++]);
    }
    NEXT(status,
         bench_say_declined(d->devices[0], (const clt_graph *const *)graphs, options, count));
    for (int i = 0; i < count; i++)
        clt_graph_destroy(graphs[i]);
    return name_failure(status);
}

/* --- the subject ------------------------------------------------------------------------------ */

/* Fills a case from OP or OP:ATTRIBUTES, with shapes by the schema. Returns 0 if there is no such
 * operator. */
static int find_operator(const char *name, char *op, case_row *row)
{
    const size_t length = strcspn(name, ":");
    snprintf(op, sizeof(((selection *)0)->ops[0]), "%.*s", (int)length, name);
    const clt_operator *found = clt_operator_find(op);
    if (!found || !clt_operator_callable(found))
        return 0;
    *row = (case_row){.name = name,
                      .op = op,
                      .attributes = name[length] ? name + length + 1 : NULL,
                      .training = clt_operator_differentiable(found)};
    return 1;
}

static int fail_case(const char *name)
{
    enum { NAMES = 256 };
    const char *names[NAMES];
    int count = 0;
    for (int i = 0; i < bench_op_case_count; i++)
        names[count++] = bench_op_cases[i].name;
    for (int i = 0; i < clt_operator_count() && count < NAMES; i++)
        if (clt_operator_callable(clt_operator_at(i)))
            names[count++] = clt_operator_name(clt_operator_at(i));
    return unknown_name("bench op", name, names, count);
}

static int find_cases(const settings *s, selection *chosen)
{
    chosen->count = 0;
    for (int i = 0; i < bench_op_case_count && s->n_names == 1; i++)
        chosen->rows[chosen->count++] = bench_op_cases[i];
    for (int k = 1; k < s->n_names && chosen->count < MOST; k++) {
        case_row *row = &chosen->rows[chosen->count];
        int found = 0;
        for (int i = 0; i < bench_op_case_count && !found; i++)
            if (!strcmp(s->names[k], bench_op_cases[i].name)) {
                *row = bench_op_cases[i];
                found = 1;
            }
        if (!found && !find_operator(s->names[k], chosen->ops[chosen->count], row))
            return fail_case(s->names[k]);
        chosen->count++;
    }
    return 0;
}

int bench_op(const settings *s)
{
    bench_device d = {0};
    bench_report r;
    static selection chosen;
    TRY(find_cases(s, &chosen));
    int code = bench_device_open(&d, s, 1);
    NEXT(code, bench_limits(&d, s));
    NEXT(code, say_declined(&d, s, &chosen));
    if (!code) {
        bench_report_begin(&r, &d, s, NULL);
        for (int i = 0; !code && i < chosen.count; i++)
            code = is_graph(&chosen.rows[i]) ? measure_nodes(&r, &chosen.rows[i])
                                             : measure_update(&r, &d, &chosen.rows[i]);
        NEXT(code, bench_report_end(&r));
    }
    bench_device_close(&d);
    return code;
}
