/* `cltrain plot`: draws the curves of --metrics files into one picture with gnuplot. */
#include <stdlib.h>
#include <string.h>

#include "options/commands.h"
#include "output/curves.h"
#include "output/gnuplot.h"
#include "text/message.h"

typedef struct drawing {
    const curves *list;
    int count;
} drawing;

static void write_script(const void *user, const char *output, FILE *script)
{
    const drawing *d = user;
    curves_script(d->list, d->count, output, script);
}

int run_plot(const settings *s)
{
    if (!s->n_names)
        return usage_error("which files? cltrain plot FILE.jsonl... -o FILE.png");
    if (!s->output)
        return usage_error("-o FILE.png is missing");
    TRY(gnuplot_check(s->output));
    curves *list = calloc((size_t)s->n_names, sizeof *list);
    TRY_MEMORY(list);
    int code = EXIT_DONE;
    for (int i = 0; !code && i < s->n_names; i++)
        code = curves_read(s->names[i], &list[i]);
    if (!code && !curves_any(list, s->n_names))
        code = failure("%s: no loss and no accuracy is a number: there is nothing to draw",
                       s->names[0]);
    if (!code) {
        const drawing d = {list, s->n_names};
        code = gnuplot_draw(s->output, write_script, &d);
    }
    for (int i = 0; i < s->n_names; i++)
        curves_free(&list[i]);
    free(list);
    return code;
}
