#include "job/predicted_step.h"

#include "job/choose_mesh.h"

#include <stdio.h>
#include <stdlib.h>

#include "text/message.h"

enum { MOST_RANKS = 1 << 24 };

int next_ranks(const char **at)
{
    char *end;
    const long value = strtol(*at, &end, 10);
    if (end == *at || value < 1 || value > MOST_RANKS || (*end && (*end != ',' || !end[1])))
        return 0;
    *at = *end ? end + 1 : end;
    return (int)value;
}

int check_simulation(const settings *s)
{
    clt_link link;
    if (!s->simulate != !s->link)
        return usage_error("--simulate and --link go together, as in --simulate 8,64,512 --link "
                           "25GB/s,5us");
    TRY(check_simulated_meshes(s));
    if (!s->simulate)
        return 0;
    if (clt_link_parse(s->link, &link) != CLT_OK)
        return usage_error("--link: %s", clt_error_message());
    for (const char *at = s->simulate; *at;)
        if (!next_ranks(&at))
            return usage_error(
                "--simulate %s: must be numbers of ranks from 1 to %d, separated by commas",
                s->simulate, MOST_RANKS);
    return 0;
}

static clt_status print_simulation(const settings *s, const clt_planner *planner)
{
    clt_link link;
    clt_status status = clt_link_parse(s->link, &link);
    if (status != CLT_OK)
        return status;
    printf("\nRanks with these devices and this batch each, link %s (weak scaling)\n", s->link);
    printf("%8s %12s %12s %12s %14s %10s %8s  %s\n", "ranks", "step", "reduction", "exposed",
           "samples/s", "efficiency", "buckets", "between ranks");
    for (const char *at = s->simulate; *at;) {
        const int ranks = next_ranks(&at);
        clt_prediction p;
        clt_prediction_init(&p);
        status = clt_planner_simulate(planner, ranks, &link, &p);
        if (status != CLT_OK)
            return status;
        char size[24] = "-";
        if (p.bucket_bytes)
            snprintf(size, sizeof size, "%lld MB", (long long)(p.bucket_bytes >> 20));
        printf("%8d %9.3f ms %9.3f ms %9.3f ms %14.0f %10.3f %8s  %s\n", ranks, 1e3 * p.step,
               1e3 * p.reduction, 1e3 * p.exposed, p.samples_per_second, p.efficiency, size,
               p.algorithm);
    }
    return CLT_OK;
}

int print_prediction(const settings *s, const clt_planner *planner)
{
    fputs(clt_planner_text(planner), stdout);
    return library_failure(s->simulate ? print_simulation(s, planner) : CLT_OK);
}
