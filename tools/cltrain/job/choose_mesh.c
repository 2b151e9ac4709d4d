#include "job/choose_mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/predicted_step.h"
#include "options/groups.h"
#include "text/message.h"

/* Rows of the ranking that are printed. */
enum { ROWS = 10, SIMULATED_ROWS = 8 };

/* Most seconds for measuring plans of a second and further number of simulated devices. */
enum { LATER_SECONDS = 5 };

int chooses_mesh(const settings *s)
{
    return s->parallel && !strcmp(s->parallel, "auto");
}

/* Whether auto is one of the words of --parallel. */
static int names_auto(const char *mesh)
{
    for (const char *at = mesh; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, "auto", 4) && (!at[4] || strchr(",=:", at[4])))
            return 1;
    }
    return 0;
}

int check_auto(const settings *s, int trains)
{
    const struct {
        const char *name;
        int given;
    } others[] = {{"zero", s->zero >= 0},          {"stages", s->stages != NULL},
                  {"in-flight", s->in_flight > 0}, {"offload", s->offload != NULL},
                  {"split", s->split != NULL},     {"rebalance", s->rebalance > 0},
                  {"replay", s->replay != NULL}};
    if (!names_auto(s->parallel))
        return 0;
    if (!chooses_mesh(s))
        return usage_error("--parallel %s: auto chooses all axes: write auto alone, or the axes "
                           "without it",
                           s->parallel);
    if (!trains)
        return usage_error("--parallel auto: is for train and plan; name the mesh here, as dp=2");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].given)
            return usage_error("--parallel auto and --%s exclude each other: auto chooses how the "
                               "devices divide the work",
                               others[i].name);
    return 0;
}

/* All ranks must choose, or none. */
static int compare_ranks(const job *j, const settings *s)
{
    const clt_world *world = &j->ranks.world;
    int first, all;
    if (world->ranks < 2)
        return 0;
    if (clt_world_count(world, chooses_mesh(s), &first, &all) != CLT_OK)
        return library_failure(CLT_INTERNAL);
    return all == 0 || all == world->ranks
               ? 0
               : usage_error("--parallel: %d of %d ranks have auto: start all ranks with the same "
                             "options",
                             all, world->ranks);
}

static int show_ranking(clt_meshes *meshes, int rows)
{
    const char *text = clt_meshes_text(meshes, rows);
    TRY_MEMORY(text);
    fputs(text, stdout);
    fflush(stdout);
    return 0;
}

/* Sets what the user could have written. Parts of a batch of dp alone are divided by speed, as
 * without a mesh. Virtual shards are equal in any case. */
static int take(job *j, settings *s, const clt_mesh_entry *best)
{
    const int plain = !strncmp(best->parallel, "dp=", 3) && !strchr(best->parallel, ',') &&
                      best->zero == 0 && !j->options.virtual_shards;
    snprintf(j->mesh, sizeof j->mesh, "%s", best->parallel);
    s->parallel = plain ? NULL : j->mesh;
    s->zero = best->zero;
    s->accumulate = best->accumulate;
    free(j->stages);
    s->stages = j->stages = best->stages ? strdup(best->stages) : NULL;
    if (best->stages)
        TRY_MEMORY(j->stages);
    j->options.zero = best->zero;
    j->options.accumulate = best->accumulate;
    if (!j->silent && plain) {
        printf("trains on %s: --parallel %s would divide batches equally; without --parallel they "
               "are divided by speed, as now\n",
               best->parallel, best->parallel);
    } else if (!j->silent) {
        printf("trains on %s: --parallel %s", best->parallel, best->parallel);
        if (best->zero)
            printf(" --zero %d", best->zero);
        if (best->accumulate > 1)
            printf(" --accumulate %d", best->accumulate);
        if (best->stages)
            show(" --stages '%s'", best->stages);
        printf(" does the same\n");
    }
    return 0;
}

/* Makes the graph for a while: job_model makes it again, with the options that are then set. */
static int make_graph(job *j, const settings *s)
{
    const int code = job_graph(j, s);
    return code ? code : read_groups(j->graph, s);
}

static void drop_graph(job *j)
{
    clt_graph_destroy(j->graph);
    j->graph = NULL;
}

/* The trainer's options that do not depend on the mesh. Kernels are measured once it is chosen. */
static clt_trainer_options options_of(const job *j)
{
    clt_trainer_options o = j->options;
    o.tune_seconds = 0;
    o.heartbeat = NULL;
    return o;
}

static int choose(job *j, settings *s)
{
    const clt_trainer_options options = options_of(j);
    clt_mesh_options mesh;
    clt_meshes *meshes;
    clt_mesh_entry best;
    clt_mesh_options_init(&mesh);
    clt_mesh_entry_init(&best);
    if (!j->silent) {
        printf("comparing meshes of %d devices\n",
               j->n_devices * (j->ranks.world.ranks > 1 ? j->ranks.world.ranks : 1));
        fflush(stdout);
    }
    mesh.stop = j->stop;
    mesh.user = j->stop_user;
    TRY(name_failure(
        clt_meshes_create(j->graph, j->devices, j->n_devices, &options, &mesh, &meshes)));
    int code = j->silent ? 0 : show_ranking(meshes, ROWS);
    NEXT(code, library_failure(clt_meshes_get(meshes, 0, &best)));
    NEXT(code, take(j, s, &best));
    clt_meshes_destroy(meshes);
    return code;
}

int job_choose_mesh(job *j, settings *s)
{
    TRY(compare_ranks(j, s));
    if (!chooses_mesh(s))
        return 0;
    int code = make_graph(j, s);
    code = ranks_agree(&j->ranks, code);
    NEXT(code, choose(j, s));
    drop_graph(j);
    return code;
}

/* --- machines that are not there ------------------------------------------------------------- */

/* Returns the steps of --sync-every; 0: it is wrong. */
static int64_t steps_between(const settings *s)
{
    char *end;
    if (!s->sync_every)
        return 8;
    const long long steps = strtoll(s->sync_every, &end, 10);
    return *end || steps < 1 ? 0 : steps;
}

int simulates_meshes(const settings *s)
{
    return s->simulate && s->inter;
}

int check_simulated_meshes(const settings *s)
{
    clt_link link;
    const char *const needs = s->inter          ? "--inter"
                              : s->per_node > 0 ? "--per-node"
                              : s->sync_every   ? "--sync-every"
                                                : NULL;
    if (needs && !s->simulate)
        return usage_error("%s needs --simulate, as in --simulate 64 --link 25GB/s,5us --inter "
                           "1GB/s,30us",
                           needs);
    if (needs && !s->inter)
        return usage_error("%s needs --inter, the link between nodes", needs);
    if (s->simulate && !s->inter && s->wire && strcmp(s->wire, "f32") != 0)
        return usage_error("--wire %s: --simulate without --inter predicts gradients in f32: add "
                           "--inter, which ranks meshes with and without 16 bits on the wire",
                           s->wire);
    if (s->inter && s->parallel)
        return usage_error("--inter and --parallel exclude each other: simulated machines are "
                           "ranked with all meshes");
    if (s->inter && s->sync_every && s->virtual_shards > 0)
        return usage_error("--sync-every and --virtual-shards exclude each other: replicas that "
                           "average have no virtual shards");
    for (const char *at = s->inter && s->virtual_shards > 0 ? s->simulate : NULL; at && *at;) {
        const int devices = next_ranks(&at);
        if (devices > s->virtual_shards)
            return usage_error("--simulate %s: --virtual-shards %lld are fewer than %d devices: "
                               "each device needs one",
                               s->simulate, (long long)s->virtual_shards, devices);
        if (!devices)
            break;
    }
    const char *const chosen = s->zero >= 0       ? "zero"
                               : s->stages        ? "stages"
                               : s->in_flight > 0 ? "in-flight"
                               : s->offload       ? "offload"
                               : s->split         ? "split"
                                                  : NULL;
    if (s->inter && chosen)
        return usage_error("--inter and --%s exclude each other: simulated machines are ranked "
                           "with all ways to divide the work",
                           chosen);
    if (s->sync_every && !steps_between(s))
        return usage_error(
            "--sync-every %s: simulated meshes average after a number of steps, as 8",
            s->sync_every);
    if (s->inter && clt_link_parse(s->inter, &link) != CLT_OK)
        return usage_error("--inter: %s", clt_error_message());
    return 0;
}

/* Replaces *earlier by this search. So many devices may be too few for any mesh: *status is then
 * UNSUPPORTED. */
static int print_number(job *j, const settings *s, int devices, clt_meshes **earlier,
                        clt_status *status)
{
    const clt_trainer_options options = options_of(j);
    clt_mesh_options mesh;
    clt_meshes *meshes;
    clt_mesh_options_init(&mesh);
    mesh.devices = devices;
    if (s->per_node > 0)
        mesh.per_node = (int)s->per_node;
    mesh.sync_every = steps_between(s);
    mesh.earlier = *earlier;
    if (*earlier) /* most plans have been measured */
        mesh.seconds = LATER_SECONDS;
    if (clt_link_parse(s->link, &mesh.link) != CLT_OK ||
        clt_link_parse(s->inter, &mesh.inter) != CLT_OK)
        return library_failure(CLT_INVALID_ARGUMENT);
    *status = clt_meshes_create(j->graph, j->devices, j->n_devices, &options, &mesh, &meshes);
    printf("\n");
    if (*status == CLT_UNSUPPORTED) {
        show("%s\n", clt_error_message());
        return 0;
    }
    TRY(name_failure(*status));
    clt_meshes_destroy(*earlier);
    *earlier = meshes;
    return show_ranking(meshes, SIMULATED_ROWS);
}

static void print_simulated_head(const job *j, const settings *s)
{
    show("%s on devices like %s, %lld a node; link %s, between nodes %s\n", s->model,
         clt_device_label(j->devices[0]), s->per_node > 0 ? (long long)s->per_node : 8LL, s->link,
         s->inter);
    if (s->virtual_shards > 0)
        show("%lld virtual shards\n", (long long)s->virtual_shards);
    else
        show("local=N (N replicas that average every %lld steps) and wire bf16 change results\n",
             (long long)steps_between(s));
}

int print_simulated_meshes(job *j, const settings *s)
{
    clt_meshes *earlier = NULL;
    clt_status status = CLT_OK;
    int code = make_graph(j, s);
    if (!code)
        print_simulated_head(j, s);
    for (const char *at = s->simulate; !code && *at;)
        code = print_number(j, s, next_ranks(&at), &earlier, &status);
    if (!code && !earlier) /* no number has a mesh */
        code = name_failure(status);
    clt_meshes_destroy(earlier);
    drop_graph(j);
    return code;
}
