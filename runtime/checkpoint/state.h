/* state.json: where the run stands, what the other files must be, and the sections. */
#ifndef CLT_CHECKPOINT_STATE_H
#define CLT_CHECKPOINT_STATE_H

#include <jansson.h>

#include <cltrain/checkpoint.h>

enum { CLT_PART_MODEL, CLT_PART_OPTIMIZER, CLT_PARTS };

#define CLT_STATE_FILE "state.json"

/* The file names of the parts. */
extern const char *const clt_part_files[CLT_PARTS];

/* What a part's file must be. */
typedef struct clt_part {
    int64_t bytes;
    uint64_t hash; /* XXH3-64 */
} clt_part;

typedef struct clt_state {
    clt_run_state run;
    clt_part parts[CLT_PARTS];
    clt_section *sections;
    int section_count;
    json_t *root; /* owns the names and texts of string sections */
} clt_state;

/* The content of state.json, to be freed with free() (jansson's). Errors: INVALID_ARGUMENT. */
clt_status clt_state_encode(const clt_checkpoint_desc *desc, const clt_part *parts, char **text);

/* Errors: FORMAT, UNSUPPORTED for a newer version; the state is then empty. */
clt_status clt_state_decode(const char *text, size_t bytes, clt_state *out);

void clt_state_free(clt_state *state);

#endif
