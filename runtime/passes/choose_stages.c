/* The choice of cuts: which pieces of a graph, which lie between its cuts, make a stage. */
#include <float.h>

#include "base/alloc.h"
#include "base/error.h"
#include "passes/passes.h"

/* Dynamic programming over stages and pieces. Entry [s][i] is about s + 1 stages that have the
 * first i + 1 pieces. */
typedef struct table {
    double *most; /* the work of the largest stage; DBL_MAX: there is no such division */
    int *begins;  /* the first piece of the last of these stages */
} table;

/* Finds where stage s begins if it ends with piece i. */
static void find_begin(const clt_stage_costs *c, int s, int i, const table *t)
{
    const int n = c->pieces;
    double own = 0;
    t->most[s * n + i] = DBL_MAX;
    for (int begin = i; begin >= s; begin--) {
        own += c->work[s * n + begin];
        const double before = s && begin ? t->most[(s - 1) * n + begin - 1] : 0;
        const double largest = own > before ? own : before;
        const bool fits = !c->ends || i < c->ends[s * n + begin];
        if ((s ? begin > 0 : begin == 0) && fits && largest < t->most[s * n + i]) {
            t->most[s * n + i] = largest;
            t->begins[s * n + i] = begin;
        }
    }
}

clt_status clt_stages_balance(const clt_stage_costs *c, int *begins, bool *found)
{
    const int n = c->pieces;
    table t = {clt_calloc((size_t)(c->stages * n), sizeof *t.most),
               clt_calloc((size_t)(c->stages * n), sizeof *t.begins)};
    const bool memory = t.most && t.begins;
    for (int s = 0; memory && s < c->stages; s++)
        for (int i = s; i < n; i++)
            find_begin(c, s, i, &t);
    *found = memory && n >= c->stages && t.most[c->stages * n - 1] < DBL_MAX;
    for (int s = c->stages - 1, i = n - 1; *found && s >= 0; s--) {
        begins[s] = t.begins[s * n + i];
        i = begins[s] - 1;
    }
    CLT_FREE(t.most, t.begins);
    return memory ? CLT_OK : CLT_OUT_OF_MEMORY;
}
