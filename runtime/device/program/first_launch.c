#include "device/program/first_launch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/vec.h"
#include "device/program/cache_file.h"
#include "device/program/compile_helpers.h"
#include "device/program/compile_watch.h"
#include "device/program/program.h"
#include "device/program/program_cache.h"

/* The cache folder has a file for each program, with a line for each kernel that was compiled and
 * is thus in the driver's own cache. */
static const char folder_part[] = "compiled";

enum { NAME_BYTES = 48 };
#define MOST_BYTES ((int64_t)4 << 20)

typedef struct group {
    int *launches, count; /* of one program */
    clt_str source, options;
    clt_str kernels; /* the lines of its file */
    clt_cache_key key;
    char *request; /* NULL: all is compiled */
} group;

void clt_first_buffer(clt_first_launch *launch, int64_t bytes)
{
    clt_str_add(&launch->args, " b %lld", (long long)bytes);
    launch->n_args++;
}

void clt_first_arg(clt_first_launch *launch, const void *value, int bytes)
{
    const unsigned char *byte = value;
    clt_str_add(&launch->args, " v %d", bytes);
    for (int i = 0; i < bytes; i++)
        clt_str_add(&launch->args, " %d", byte[i]);
    launch->n_args++;
}

bool clt_first_launches_help(const clt_device *device)
{
    return (device->quirks & CLT_QUIRK_LATE_COMPILE) && device->cache_dir && clt_helpers_count();
}

/* Returns the identity of the folder in which PoCL keeps compiled kernels: another one, or one that
 * was removed since, does not have them. */
static uint64_t driver_cache(void)
{
    const char *own = getenv("POCL_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    clt_str path = {0};
    struct stat info = {.st_ino = 0};
    if (own && *own)
        clt_str_add(&path, "%s", own);
    else if (xdg && *xdg)
        clt_str_add(&path, "%s/pocl/kcache", xdg);
    else
        clt_str_add(&path, "%s/.cache/pocl/kcache", home ? home : "");
    uint64_t hash = clt_hash_text(clt_str_text(&path), 1);
    if (stat(clt_str_text(&path), &info) == 0)
        hash = clt_hash(&info.st_ino, sizeof info.st_ino, hash);
    clt_str_free(&path);
    return hash;
}

/* The device compiles again for another size of work-groups, and for very wide ranges. */
static void add_line(const clt_first_launch *l, clt_str *out)
{
    bool wide = false;
    for (int d = 0; d < l->work_dim; d++)
        wide = wide || l->global[d] >= 65535;
    clt_str_add(out, "%s %d %zu %zu %zu %d\n", l->key.kernel, l->work_dim, l->local[0], l->local[1],
                l->local[2], wide);
}

static bool has_line(const char *lines, const char *line)
{
    const size_t length = strlen(line);
    for (const char *at = lines; (at = strstr(at, line)); at += length)
        if (at == lines || at[-1] == '\n')
            return true;
    return false;
}

/* Adds the launch to the group's request and lines unless its kernel is there. */
static void add_kernel(const clt_first_launch *l, group *g, int *n, clt_str *request)
{
    clt_str line = {0};
    add_line(l, &line);
    if (!line.failed && !has_line(clt_str_text(&g->kernels), line.text)) {
        clt_str_add(&g->kernels, "%s", line.text);
        clt_str_add(request, " %zu\n%s\n%d", strlen(l->key.kernel), l->key.kernel, l->work_dim);
        for (int d = 0; d < 3; d++)
            clt_str_add(request, " %zu", l->global[d]);
        for (int d = 0; d < 3; d++)
            clt_str_add(request, " %zu", l->local[d]);
        clt_str_add(request, " %d%s", l->n_args, clt_str_text(&l->args));
        ++*n;
    }
    clt_str_free(&line);
}

static void add_text(clt_str *out, const char *text)
{
    clt_str_add(out, "%zu\n", strlen(text));
    clt_str_add(out, "%s\n", text);
}

static void make_name(const group *g, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%016" PRIx64 "%016" PRIx64, g->key.hash[0],
             g->key.hash[1] ^ driver_cache());
}

/* Makes the request for the kernels of a program that are not compiled. */
static clt_status make_request(clt_device *device, const clt_first_launch *launches, group *g)
{
    clt_str head = {0}, kernels = {0};
    char *known = NULL, name[NAME_BYTES];
    size_t bytes;
    int n = 0;
    CLT_TRY(clt_program_compose(device, &launches[g->launches[0]].key, &g->source, &g->options));
    g->key = clt_cache_key_make(device, clt_str_text(&g->options), clt_str_text(&g->source));
    make_name(g, name);
    if (clt_cache_read(device->cache_dir, folder_part, name, &known, &bytes))
        clt_str_add(&g->kernels, "%s", known);
    clt_free(known);
    for (int i = 0; i < g->count; i++)
        add_kernel(&launches[g->launches[i]], g, &n, &kernels);
    if (n) {
        add_text(&head, device->caps.platform);
        add_text(&head, device->caps.name);
        add_text(&head, clt_str_text(&g->options));
        add_text(&head, clt_str_text(&g->source));
        clt_str_add(&head, "%d%s", n, clt_str_text(&kernels));
        g->request = head.failed || kernels.failed ? NULL : clt_strdup(head.text);
    }
    clt_str_free(&head);
    clt_str_free(&kernels);
    return CLT_OK;
}

/* Kernels with many options are large and take longest. They go first, so that no helper still
 * compiles one when the others have nothing left. */
static int longest_first(const void *a, const void *b)
{
    const group *x = a, *y = b;
    return (x->options.length < y->options.length) - (x->options.length > y->options.length);
}

typedef struct watch {
    clt_device *device;
    const clt_first_launch *launches;
    const group *const *of; /* by request */
    const bool *done;
    int count;
} watch;

/* Builds the program here too while helpers compile others. Its kernels are made later, and a
 * failure is reported there. */
static void report(void *user, int number, int finished)
{
    const watch *w = user;
    if (w->done[number])
        (void)clt_program_get_for(w->device, &w->launches[w->of[number]->launches[0]].key, NULL);
    clt_compile_report(w->device, false, finished, w->count);
}

static void serve(clt_device *device, const clt_first_launch *launches, const group *groups,
                  int count)
{
    const char **requests = clt_calloc((size_t)count + 1, sizeof *requests);
    const group **of = clt_calloc((size_t)count + 1, sizeof *of);
    bool *done = clt_calloc((size_t)count + 1, sizeof *done);
    int n = 0;
    for (int i = 0; requests && of && done && i < count; i++)
        if (groups[i].request) {
            of[n] = &groups[i];
            requests[n++] = groups[i].request;
        }
    if (n) {
        watch w = {device, launches, of, done, n};
        clt_compile_report(device, false, 0, n);
        clt_helpers_serve(requests, n, done, report, &w);
        clt_cache_trim(device->cache_dir, folder_part, MOST_BYTES);
    }
    for (int i = 0; i < n; i++) {
        char name[NAME_BYTES];
        make_name(of[i], name);
        if (done[i] && !of[i]->kernels.failed)
            clt_cache_write(device->cache_dir, folder_part, name, "", 0, of[i]->kernels.text,
                            of[i]->kernels.length);
    }
    CLT_FREE(requests, of, done);
}

/* Puts the launches of one program together. */
static clt_status make_groups(const clt_first_launch *launches, int count, group *groups, int *n)
{
    for (int i = 0; i < count; i++) {
        int g = 0;
        const clt_program_key *key = &launches[i].key;
        while (g < *n && !clt_program_keys_equal(key, &launches[groups[g].launches[0]].key))
            g++;
        if (g == *n) {
            groups[g].launches = clt_calloc((size_t)count, sizeof *groups[g].launches);
            CLT_TRY_MEMORY(groups[g].launches);
            ++*n;
        }
        groups[g].launches[groups[g].count++] = i;
    }
    return CLT_OK;
}

static void compile(clt_device *device, const clt_first_launch *launches, int count)
{
    group *groups = clt_calloc((size_t)count + 1, sizeof *groups);
    int n = 0;
    clt_status status = groups ? make_groups(launches, count, groups, &n) : CLT_OUT_OF_MEMORY;
    for (int i = 0; i < n && status == CLT_OK; i++)
        status = make_request(device, launches, &groups[i]);
    if (status == CLT_OK && n) {
        qsort(groups, (size_t)n, sizeof *groups, longest_first);
        serve(device, launches, groups, n);
    }
    for (int i = 0; i < n; i++) {
        clt_str_free(&groups[i].source);
        clt_str_free(&groups[i].options);
        clt_str_free(&groups[i].kernels);
        CLT_FREE(groups[i].launches, groups[i].request);
    }
    clt_free(groups);
}

/* --- launches of later --------------------------------------------------------------------------
 */

struct clt_first_list {
    clt_first_launch *all;
    int count, room;
};

static void free_copy(clt_first_launch *launch)
{
    clt_free((char *)launch->key.options);
    clt_str_free(&launch->args);
}

void clt_first_launches_forget(clt_device *device)
{
    struct clt_first_list *list = device->later;
    for (int i = 0; list && i < list->count; i++)
        free_copy(&list->all[i]);
    if (list)
        clt_free(list->all);
    clt_free(list);
    device->later = NULL;
}

void clt_first_launches_later(clt_device *device, const clt_first_launch *launches, int count)
{
    if (!device->later)
        device->later = CLT_NEW(struct clt_first_list);
    struct clt_first_list *list = device->later;
    for (int i = 0; list && i < count; i++) {
        clt_first_launch copy = launches[i];
        copy.key.options = clt_strdup(launches[i].key.options);
        copy.args = (clt_str){0};
        clt_str_add(&copy.args, "%s", clt_str_text(&launches[i].args));
        if (!copy.key.options || copy.args.failed ||
            CLT_PUSH(list->all, list->count, list->room, copy) != CLT_OK)
            free_copy(&copy);
    }
}

void clt_first_launches_compile(clt_device *device, const clt_first_launch *launches, int count)
{
    const struct clt_first_list *list = device->later;
    const int own = count, more = list ? list->count : 0;
    clt_first_launch *all = clt_calloc((size_t)(own + more) + 1, sizeof *all);
    for (int i = 0; all && i < own; i++)
        all[i] = launches[i];
    for (int i = 0; all && i < more; i++)
        all[own + i] = list->all[i];
    if (all)
        compile(device, all, own + more);
    clt_free(all);
    clt_first_launches_forget(device);
}
