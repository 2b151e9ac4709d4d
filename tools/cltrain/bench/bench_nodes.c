#include "bench/bench_nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "bench/bench.h"
#include "text/message.h"

/* --- by node --------------------------------------------------------------------------------- */

typedef struct line {
    clt_command_kind kind;
    const char *node, *op, *variant;
    int backward, launches;
    double seconds, flops, bytes; /* over all steps */
} line;

static line *find_line(line *lines, int *count, const clt_profile_record *r)
{
    const char *node = *r->node ? r->node : r->name;
    for (int i = 0; i < *count; i++)
        if (!strcmp(lines[i].node, node))
            return &lines[i];
    lines[*count] = (line){r->kind, node, r->op, r->variant, r->backward, 0, 0, 0, 0};
    return &lines[(*count)++];
}

/* Returns the share of the limits that a line reaches. Updates write to what they have read, so
 * their limit is not that of a copy. */
static double share_of(const line *l, const clt_limits *limits)
{
    clt_limits own = *limits;
    if (!*l->op && l->kind != CLT_COMMAND_TRANSFER)
        own.copy_bytes = own.update_bytes;
    return bench_share(&own, l->flops, l->bytes, l->seconds);
}

static int longest_first(const void *a, const void *b)
{
    const double x = ((const line *)a)->seconds, y = ((const line *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Unknown values are null in JSON and '-' in the table. */
static json_t *known(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

static void print_known(double value, int width, int digits)
{
    if (value > 0)
        printf(" %*.*f", width, digits, value);
    else
        printf(" %*s", width, "-");
}

static int print_json(const line *lines, int count, double steps, const clt_limits *limits,
                      const char *device, double step_seconds)
{
    json_t *rows = json_array();
    for (int i = 0; i < count; i++) {
        const line *l = &lines[i];
        json_array_append_new(
            rows, json_pack("{s:s, s:s, s:s, s:f, s:o, s:o, s:o}", "node", l->node, "operator",
                            l->op, "variant", l->variant, "seconds", l->seconds / steps,
                            "flops_per_s", known(l->flops / l->seconds), "bytes_per_s",
                            known(l->bytes / l->seconds), "of_limit", known(share_of(l, limits))));
    }
    json_t *all =
        json_pack("{s:s, s:f, s:f, s:f, s:f, s:o}", "device", device, "step_seconds", step_seconds,
                  "limit_flops_per_s", limits->flops, "limit_copy_bytes_per_s", limits->copy_bytes,
                  "limit_update_bytes_per_s", limits->update_bytes, "nodes", rows);
    return print_object(all, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
}

int print_by_node(const clt_profile_record *records, int count, int64_t from, int64_t to,
                  const clt_limits *limits, const char *device, int json)
{
    line *lines = calloc((size_t)count + 1, sizeof *lines);
    TRY_MEMORY(lines);
    int n = 0, widest = 10;
    double total = 0, first = 0, last = 0;
    for (int i = 0; i < count; i++) {
        const clt_profile_record *r = &records[i];
        if (r->device || r->step < from || r->step >= to || r->kind == CLT_COMMAND_REDUCTION)
            continue;
        line *l = find_line(lines, &n, r);
        l->seconds += r->end - r->start;
        l->flops += r->flops;
        l->bytes += r->bytes;
        l->launches++;
        total += r->end - r->start;
        if (first == 0 || r->start < first)
            first = r->start;
        if (r->end > last)
            last = r->end;
    }
    qsort(lines, (size_t)n, sizeof *lines, longest_first);
    for (int i = 0; i < n; i++) {
        const int width = (int)strlen(lines[i].variant);
        widest = width > widest ? width : widest;
    }
    const double steps = (double)(to - from);
    if (json) {
        const int code = print_json(lines, n, steps, limits, device, (last - first) / steps);
        free(lines);
        return code;
    }
    show("\nDevice 0, by node, of %lld steps: %.3f ms of commands in %.3f ms a step\n",
         (long long)(to - from), 1e3 * total / steps, 1e3 * (last - first) / steps);
    show("%s: limits of this device: %.1f GFLOP/s in registers, %.1f GB/s copying (read + "
         "written), %.1f GB/s updating\n",
         device, 1e-9 * limits->flops, 1e-9 * limits->copy_bytes, 1e-9 * limits->update_bytes);
    show("%-30s %-20s %-*s %10s %6s %9s %8s %9s\n", "node", "operator", widest, "variant",
         "us a step", "share", "GFLOP/s", "GB/s", "of limit");
    for (int i = 0; i < n; i++) {
        const line *l = &lines[i];
        show("%-30.30s %-20.20s %-*s %10.1f %5.1f%%", l->node, *l->op ? l->op : "-", widest,
             l->variant, 1e6 * l->seconds / steps, 100 * l->seconds / total);
        print_known(1e-9 * l->flops / l->seconds, 9, 1);
        print_known(1e-9 * l->bytes / l->seconds, 8, 1);
        print_known(share_of(l, limits), 9, 2);
        show("\n");
    }
    free(lines);
    return EXIT_DONE;
}

/* --- trace ----------------------------------------------------------------------------------- */

/* Makes an event of the trace. Each device has a row of commands, and a row of reductions below all
 * of those. */
static json_t *event_of(const clt_profile_record *r, int n_devices, int rank)
{
    const double seconds = r->end - r->start;
    json_t *args = json_pack("{s:I, s:s, s:s, s:s}", "step", (json_int_t)r->step + 1, "kernel",
                             r->name, "operator", r->op, "variant", r->variant);
    if (args && r->flops > 0 && seconds > 0)
        json_object_set_new(args, "GFLOP/s", json_real(1e-9 * r->flops / seconds));
    if (args && r->bytes > 0 && seconds > 0)
        json_object_set_new(args, "GB/s", json_real(1e-9 * r->bytes / seconds));
    const int reduction = r->kind == CLT_COMMAND_REDUCTION;
    const char *category = reduction     ? "reduction"
                           : !*r->node   ? "transfer or update"
                           : r->backward ? "backward"
                                         : "forward";
    return json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:o}", "name",
                     *r->node ? r->node : r->name, "cat", category, "ph", "X", "ts", 1e6 * r->start,
                     "dur", 1e6 * seconds, "pid", rank, "tid",
                     r->device + (reduction ? n_devices : 0), "args", args);
}

static int add(FILE *file, json_t *event, const char *before)
{
    char *text = event ? json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(event);
    const int done = text && fprintf(file, "%s%s", before, text) > 0;
    free(text);
    return done;
}

int write_trace(const char *path, const clt_profile_record *records, int count,
                clt_device *const *devices, int n_devices, int rank)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return failure("cannot write the profile %s: %s", path, strerror(errno));
    errno = 0;
    int done = fprintf(file, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[") > 0;
    const char *before = "\n";
    int rows = n_devices;
    for (int i = 0; i < count && rows == n_devices; i++)
        rows += records[i].kind == CLT_COMMAND_REDUCTION ? n_devices : 0;
    for (int row = 0; done && row < rows; row++, before = ",\n") {
        char name[256];
        snprintf(name, sizeof name, "%s%s", clt_device_label(devices[row % n_devices]),
                 row < n_devices ? "" : ": reductions");
        done = add(file,
                   json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", "thread_name", "ph", "M",
                             "pid", rank, "tid", row, "args", "name", name),
                   before);
    }
    for (int i = 0; done && i < count; i++)
        done = add(file, event_of(&records[i], n_devices, rank), before);
    done = done && fprintf(file, "\n]}\n") > 0;
    /* Buffered data may not fit on the disk either. */
    if (fclose(file) != 0 || !done)
        return failure("cannot write the profile %s: %s", path, strerror(errno ? errno : EIO));
    return EXIT_DONE;
}
