/* Policies that programs write in Fortran. Module cltrain_policies declares these functions. */
#include "handles.h"

#include <stdlib.h>
#include <string.h>

clt_policy *clt_f_policy_new(const char *name, void *user,
                             clt_status (*begin)(void *, clt_policy_run *, const char *),
                             clt_status (*evaluated)(void *, clt_policy_run *,
                                                     const clt_evaluation *),
                             char *(*save)(void *), void (*destroy)(void *))
{
    const size_t bytes = strlen(name) + 1;
    clt_policy *policy = malloc(sizeof *policy + bytes);
    if (!policy) {
        (void)clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice for a policy");
        return NULL;
    }
    clt_policy_init(policy);
    memcpy(policy + 1, name, bytes);
    policy->name = (const char *)(policy + 1);
    policy->user = user;
    policy->begin = begin;
    policy->evaluated = evaluated;
    policy->save = save;
    policy->destroy = destroy;
    return policy;
}

void clt_f_policy_free(clt_policy *policy)
{
    policy->destroy(policy->user);
    free(policy);
}

/* A copy of a text, which the library frees. */
char *clt_f_copy(const char *text)
{
    return strdup(text);
}
