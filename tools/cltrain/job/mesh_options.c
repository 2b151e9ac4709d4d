/* The options that order devices in a mesh, and divide the model or the batch over them. */
#include <stdlib.h>
#include <string.h>

#include "job/choose_mesh.h"
#include "job/job.h"
#include "text/message.h"

int mesh_stages(const settings *s)
{
    const char *pp = s->parallel ? strstr(s->parallel, "pp=") : NULL;
    const long stages = pp ? strtol(pp + strlen("pp="), NULL, 10) : 1;
    return stages < 1 ? 1 : stages > CLT_MOST_ACCUMULATE ? CLT_MOST_ACCUMULATE : (int)stages;
}

/* Each stage but the first begins at a layer. */
static int check_stages(const settings *s)
{
    int layers = 1;
    const int wanted = mesh_stages(s) - 1;
    if (!s->stages || !strcmp(s->stages, "measured"))
        return 0;
    for (const char *at = s->stages; *at; at++)
        layers += *at == '|';
    return layers == wanted
               ? 0
               : usage_error("--stages %s: must name %d layer%s for pp=%d, one for each "
                             "stage but the first, not %d",
                             s->stages, wanted, wanted == 1 ? "" : "s", wanted + 1, layers);
}

int check_mesh(const settings *s, int trains)
{
    if (!trains && s->parallel && strstr(s->parallel, "local="))
        return usage_error("--parallel %s: local has replicas that train; leave it out here",
                           s->parallel);
    if (s->stages && !chooses_mesh(s) && !(s->parallel && strstr(s->parallel, "pp=")))
        return usage_error("--stages %s: needs a pipeline, --parallel pp=N", s->stages);
    TRY(check_auto(s, trains));
    TRY(check_stages(s));
    if (s->zero > 0 && s->zero != 3 && !(trains && s->zero == 1))
        return usage_error("--zero %lld: must be %s", (long long)s->zero,
                           trains ? "0, 1 or 3" : "0 or 3, as there is no optimizer");
    return 0;
}

int job_owners(const settings *s)
{
    static const char what[] = "optimizer";
    if (!s->offload)
        return 0;
    if (strncmp(s->offload, what, sizeof what - 1) != 0)
        return -1;
    const char *rest = s->offload + sizeof what - 1;
    if (!*rest)
        return 1;
    char *end = NULL;
    const long count =
        *rest == ':' && rest[1] >= '0' && rest[1] <= '9' ? strtol(rest + 1, &end, 10) : 0;
    return end && !*end && count > 0 && count <= 64 ? (int)count : -1;
}

int mesh_failure(const settings *s, clt_status status)
{
    return job_is_meshed(s) ? name_failure(status) : library_failure(status);
}

int job_is_meshed(const settings *s)
{
    return s->parallel || s->zero == 3 || s->offload;
}

/* As in the library. */
enum { MOST_VIRTUAL_SHARDS = 1 << 16 };

/* The shards are micro-batches of equal sizes, with the kernels of a canonical device. */
int read_virtual_shards(job *j, const settings *s)
{
    const int64_t shards = s->virtual_shards;
    if (shards < 1)
        return 0;
    const char *other = s->accumulate > 1                       ? "accumulate"
                        : s->in_flight > 0                      ? "in-flight"
                        : s->split && strcmp(s->split, "equal") ? "split"
                        : s->replay                             ? "replay"
                        : s->rebalance                          ? "rebalance"
                        : s->tune && strcmp(s->tune, "off")     ? "tune"
                        : s->zero == 3                          ? "zero 3"
                        : s->offload                            ? "offload"
                                                                : NULL;
    if (shards & (shards - 1) || shards > MOST_VIRTUAL_SHARDS)
        return usage_error("--virtual-shards %lld: must be a power of two, at most %d",
                           (long long)shards, MOST_VIRTUAL_SHARDS);
    if (other)
        return usage_error("--virtual-shards does not work with --%s: leave one of them out",
                           other);
    j->options.virtual_shards = shards;
    j->options.tune_seconds = 0;
    return 0;
}
