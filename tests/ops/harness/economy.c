#include "ops/harness/economy.h"

enum { OP_MAX_FEATURES = 1 << 18, OP_OPTIONS_TEXT = 4096 };

/* A set of hashes, kept until the program ends. */
static uint64_t op_features[OP_MAX_FEATURES];
static int op_n_features;

int op_plan_counts[2];

/* Returns true if the hash was not in the set. Adds the hash if `add`. */
static bool op_is_new(uint64_t hash, bool add)
{
    hash = hash ? hash : 1;
    uint64_t at = hash % OP_MAX_FEATURES;
    for (; op_features[at]; at = (at + 1) % OP_MAX_FEATURES)
        if (op_features[at] == hash)
            return false;
    if (add) {
        assert_true(++op_n_features < OP_MAX_FEATURES / 2);
        op_features[at] = hash;
    }
    return true;
}

/* Whether all numbers of an option from 2 on count as equal: "-DTX=" for -DTX=7. */
static bool op_is_size(const char *option, size_t length)
{
    static const char *const choices[] = {
        "ACT",  "DROPOUT", "GATES",  "KEEP",    "KEPT",   "MAX",   "N_IN",   "OP",    "PASS",
        "POOL", "RANK",    "REDUCE", "REDUCED", "REPEAT", "SPLAT", "SPREAD", "UNPOOL"};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (length == strlen(choices[i]) + 3 && !strncmp(option + 2, choices[i], length - 3))
            return false;
    return true;
}

/* Returns the number of new features of the launch. Adds them all if `add`. */
static int op_launch_news(const clt_launch *launch, bool add)
{
    uint64_t kernel = clt_hash_text(launch->kernel, 1);
    char options[OP_OPTIONS_TEXT];
    if (launch->blas)
        return op_is_new(kernel, add);
    kernel = clt_hash_text(launch->file, kernel);
    int news = op_is_new(kernel, add);
    assert_true(snprintf(options, sizeof options, "%s", launch->options ? launch->options : "") <
                (int)sizeof options);
    for (char *rest = options, *option; (option = strtok_r(rest, " ", &rest));) {
        char *number = strchr(option, '='), *end = NULL;
        /* Products have the types of what they read and write twice: as A_T, B_T and C_T too. */
        if (strstr(launch->options, "_T=") &&
            (!strncmp(option, "-DIN", 4) || !strncmp(option, "-DOUT", 5)))
            continue;
        if (number && strtol(number + 1, &end, 10) >= 2 && !*end &&
            op_is_size(option, (size_t)(number + 1 - option)))
            snprintf(number + 1, 2, "n");
        news += op_is_new(clt_hash_text(option, kernel), add);
    }
    return news;
}

/* Returns a hash of the compiled kernel. */
static uint64_t op_launch_hash(const clt_launch *launch)
{
    uint64_t hash = clt_hash_text(launch->kernel, clt_hash_text(launch->file, 2));
    hash = clt_hash_text(launch->options ? launch->options : "", hash);
    for (int d = 0; d < launch->work_dim; d++)
        hash = hash * 31 + (uint64_t)launch->local[d];
    return hash;
}

/* Whether the launch's kernel is compiled already. If `add`, it counts as compiled from now on. */
static bool op_launch_is_compiled(const clt_launch *launch, bool add)
{
    return !op_is_new(op_launch_hash(launch), add);
}

bool op_is_new_to_case(const clt_plan *plan, uint64_t number)
{
    bool is_new = false;
    for (int i = 0; i < plan->n_nodes; i++)
        for (int j = 0; j < plan->nodes[i].program.n_launches; j++) {
            const clt_launch *launch = &plan->nodes[i].program.launches[j];
            if (!launch->blas)
                is_new =
                    op_is_new(clt_hash(&number, sizeof number, op_launch_hash(launch)), true) ||
                    is_new;
        }
    return is_new;
}

op_worth op_worth_of(const clt_plan *plan, bool add)
{
    op_worth worth = {0, 0};
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_plan_node *pn = &plan->nodes[i];
        const uint64_t op = clt_hash_text(pn->node->op->name, 3);
        worth.news += op_is_new(clt_hash_text(pn->variant ? pn->variant->name : "", op), add);
        for (int j = 0; j < pn->program.n_launches; j++) {
            const clt_launch *launch = &pn->program.launches[j];
            worth.kernels += !launch->blas && !op_launch_is_compiled(launch, add);
            worth.news += op_launch_news(launch, add);
        }
    }
    return worth;
}

double op_work_of(const clt_plan *plan)
{
    double work = 0;
    for (int i = 0; i < plan->n_nodes; i++)
        for (int j = 0; j < plan->nodes[i].program.n_launches; j++) {
            const clt_launch *launch = &plan->nodes[i].program.launches[j];
            const char *rows = strstr(launch->options ? launch->options : "", "-DRM=");
            const char *columns = rows ? strstr(rows, "-DRN=") : NULL;
            double items = 1;
            for (int d = 0; d < launch->work_dim; d++)
                items *= (double)clt_extent_at(launch->global[d], plan->options.max_batch);
            work += items * (columns ? atoi(rows + 5) * atoi(columns + 5) : 1);
        }
    return work;
}

bool op_is_worth_it(op_worth worth, const clt_plan *plan, int way, bool half, uint64_t number)
{
    enum { FEW = 2048 };
    if (getenv("CLT_TEST_ALL"))
        return true;
    if (getenv("CLT_TEST_OCLGRIND") && !worth.news &&
        (half || (int)(number % 3) != way || op_work_of(plan) > FEW ||
         !op_is_new_to_case(plan, number)))
        return false;
    return !worth.kernels || worth.news;
}
