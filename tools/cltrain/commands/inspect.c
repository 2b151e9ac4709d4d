/* `cltrain inspect`: prints the layers of a model as a table. */
#include <stdio.h>

#include <cltrain/unstable.h>
#include <jansson.h>

#include "options/commands.h"
#include "job/job.h"
#include "text/message.h"

/* Writes a shape, such as "Bx64x8x8". */
static void shape_text(const clt_node_info *n, char text[160])
{
    int used = snprintf(text, 160, "%s", n->rank ? "" : "one number");
    for (int i = 0; i < n->rank && used < 130; i++) {
        used += snprintf(text + used, 160 - (size_t)used, "%s", i ? "x" : "");
        if (n->dims[i] < -1)
            used += snprintf(text + used, 160 - (size_t)used, "%lldB", (long long)-n->dims[i]);
        else if (n->dims[i] < 0)
            used += snprintf(text + used, 160 - (size_t)used, "B");
        else
            used += snprintf(text + used, 160 - (size_t)used, "%lld", (long long)n->dims[i]);
    }
}

/* Writes a rounded count, such as "12.3 M". */
static void count_text(double value, char text[32])
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    int unit = 0;
    for (; value >= 999.5 && unit < 4; unit++)
        value /= 1000;
    snprintf(text, 32, unit ? "%.3g%s" : "%.0f%s", value, units[unit]);
}

static void print_row(const clt_node_info *n)
{
    char shape[160], parameters[48] = "", flops[32] = "";
    shape_text(n, shape);
    if (n->parameters || n->shared)
        snprintf(parameters, sizeof parameters, "%lld%s", (long long)n->parameters,
                 n->shared ? " +shared" : "");
    if (n->flops > 0)
        count_text(n->flops, flops);
    show("%-32.80s %-20s %-18s %14s %10s\n", n->name, n->op, shape, parameters, flops);
}

static json_t *row_of(const clt_node_info *n)
{
    json_t *shape = json_array();
    for (int i = 0; i < n->rank; i++)
        json_array_append_new(shape, json_integer(n->dims[i]));
    return json_pack("{s:s, s:s, s:o, s:s, s:I, s:I, s:f}", "name", n->name, "op", n->op, "shape",
                     shape, "dtype", clt_dtype_name(n->dtype), "parameters",
                     (json_int_t)n->parameters, "shared", (json_int_t)n->shared, "flops", n->flops);
}

static int print(const job *j, const settings *s)
{
    int64_t parameters = 0;
    double flops = 0;
    char text[32];
    json_t *rows = json_array();
    if (!s->json)
        show("%-32s %-20s %-18s %14s %10s\n", "layer", "operator", "output", "parameters", "FLOP");
    for (int i = 0; i < clt_graph_node_count(j->graph); i++) {
        clt_node_info n;
        TRY(library_failure(clt_graph_node_describe(j->graph, i, &n)));
        parameters += n.parameters;
        flops += n.flops;
        if (s->json)
            json_array_append_new(rows, row_of(&n));
        else
            print_row(&n);
    }
    if (s->json)
        return print_object(json_pack("{s:o, s:I, s:f}", "nodes", rows, "parameters",
                                      (json_int_t)parameters, "flops", flops),
                            JSON_REAL_PRECISION(9));
    json_decref(rows);
    count_text(flops, text);
    show("\n%lld parameters; %s FLOP forward for one sample (a multiplication and an addition are "
         "two)\n",
         (long long)parameters, text);
    return EXIT_DONE;
}

int run_inspect(const settings *s)
{
    job j = {0};
    int code = s->model ? 0 : usage_error("--model is missing; `cltrain models` lists them");
    clt_trainer_options_init(&j.options);
    /* A model file with shapes needs no data. */
    if (!code && (s->data || !clt_model_is_file(s->model)))
        code = job_data(&j, s, DATA_TRAIN | DATA_SYNTHETIC);
    NEXT(code, job_graph(&j, s));
    NEXT(code, print(&j, s));
    return job_close(&j, code);
}
