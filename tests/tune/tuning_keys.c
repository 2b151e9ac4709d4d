/* Prints the hashes by which tuning records name kernel files and sets of variants: lines "HASH
 * FILE" and "HASH VARIANT,VARIANT". rename_keys.py compares two such lists. */
#include <inttypes.h>
#include <stdio.h>

#include "device/program/kernel_source.h"
#include "device/program/source_tokens.h"
#include "tune/variant_sets.h"

static void print_sets(const clt_op *op)
{
    for (unsigned set = 1; set < 1u << variant_count(op); set++) {
        const char *comma = "";
        printf("%016" PRIx64 " ", variant_set_hash(op, set));
        for (int i = 0; i < variant_count(op); i++)
            if (set >> i & 1) {
                printf("%s%s", comma, op->variants[i].name);
                comma = ",";
            }
        printf("\n");
    }
}

int main(void)
{
    int count;
    const clt_op *const *ops = clt_ops(&count);
    for (const clt_kernel_source *s = clt_kernel_sources; s->name; s++)
        if (clt_source_tokens(s->name))
            printf("%016" PRIx64 " %s\n", clt_source_tokens(s->name), s->name);
    for (int i = 0; i < count; i++)
        print_sets(ops[i]);
    return 0;
}
