#include "tune/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/vec.h"
#include "device/program/source_tokens.h"
#include "device/program/tuning_file.h"
#include "tune/blas.h"
#include "tune/compare.h"
#include "tune/lab.h"
#include "tune/measure_node.h"
#include "tune/reference.h"
#include "tune/testing.h"

/* A candidate replaces the plan's own choice only if its time is below this share: measurements
 * have noise. */
static const double GAIN = 0.97;

enum { BLOCKS = 5, CONFIRMATIONS = 3 };
static const double BLOCK_SECONDS = 0.004;

typedef struct tuner {
    const clt_graph *graph;
    clt_lab lab;
    clt_plan_options options;
    clt_tuning_record *record;
    clt_tune_report *report;
    const clt_tune_limits *limits;
    double deadline;
    int node;                             /* the node that is measured */
    uint64_t sources[CLT_TUNING_SOURCES]; /* kernel files of its candidates so far */
} tuner;

/* One class of shapes: its first node, and that node's present time. If `choice` is false, the only
 * candidate is just compared with the reference. */
typedef struct job {
    int node;
    bool choice;
    double seconds;
} job;

static bool over(const tuner *t)
{
    return clt_clock() > t->deadline || (t->limits->stop && t->limits->stop(t->limits->user));
}

static clt_status enqueue(void *user)
{
    tuner *t = user;
    return clt_exec_enqueue(t->lab.exec, &t->lab.run, t->node, t->node + 1, 0, NULL);
}

static clt_status time_node(tuner *t, double *seconds)
{
    clt_timing timing;
    CLT_TRY(clt_time_calls(t->lab.device, enqueue, t, BLOCKS, BLOCK_SECONDS, &timing));
    *seconds = timing.median;
    return CLT_OK;
}

/* Makes a plan with one candidate (NULL: none) and the sets of CLBlast's parameters in the record.
 * Runs the nodes before the node. */
static clt_status plan_with(tuner *t, const clt_tuning_entry *entry)
{
    clt_tuning_entry entries[1 + CLT_BLAS_KERNELS];
    clt_tuning_record record = {.entries = entries};
    if (entry)
        entries[record.count++] = *entry;
    clt_tune_blas_copy(t->record, &record);
    CLT_TRY(clt_lab_plan(&t->lab, t->graph, &t->options, &record));
    return clt_lab_run(&t->lab, 0, t->node);
}

/* --- candidates ------------------------------------------------------------------------------ */

typedef struct candidate {
    const clt_variant *variant;
    char tile[CLT_TILE_TEXT];
} candidate;

static clt_target target_of(const tuner *t)
{
    return (clt_target){.caps = &t->lab.device->caps,
                        .lanes = t->lab.plan->options.lanes,
                        .max_batch = t->options.max_batch};
}

/* Lists the variants that accept the node: each with its own choice of a tile, then with its tiles.
 * The last variant is the reference. Nobody tries it beside better ones, so it stands behind the
 * counted candidates, and *reference says whether it is there. */
static clt_status list_candidates(const tuner *t, const clt_plan_node *pn, candidate **list,
                                  int *count, bool *reference)
{
    const clt_target target = target_of(t);
    int room = 0;
    *reference = false;
    for (const clt_variant *v = pn->node->op->variants; v && v->name; v++) {
        char why[CLT_WHY];
        if (v->accepts && !v->accepts(pn->node, &target, why))
            continue;
        candidate c = {v, ""};
        CLT_TRY(CLT_PUSH(*list, *count, room, c));
        for (int i = 0; v->tiles && v->tiles(pn->node, &target, i, c.tile); i++)
            CLT_TRY(CLT_PUSH(*list, *count, room, c));
        *reference = v != pn->node->op->variants && !v[1].name;
        *count -= *reference;
    }
    return CLT_OK;
}

static clt_tuning_entry entry_of(const tuner *t, const clt_plan_node *pn, const candidate *c)
{
    const clt_target target = target_of(t);
    clt_tuning_entry entry = {.key = pn->key, .variants = clt_variants_hash(pn->node, &target)};
    snprintf(entry.op, sizeof entry.op, "%s", pn->node->op->name);
    snprintf(entry.shape_class, sizeof entry.shape_class, "%s", pn->shape_class);
    snprintf(entry.variant, sizeof entry.variant, "%s", c->variant->name);
    snprintf(entry.options, sizeof entry.options, "%s", c->tile);
    return entry;
}

/* Adds the kernel files of the node in the present plan to the files of its class. */
static void note_files(tuner *t)
{
    const clt_program *program = &t->lab.plan->nodes[t->node].program;
    for (int i = 0; i < program->n_launches; i++) {
        if (program->launches[i].blas)
            continue;
        const uint64_t source = clt_source_tokens(program->launches[i].file);
        int k = 0;
        while (k < CLT_TUNING_SOURCES && t->sources[k] && t->sources[k] != source)
            k++;
        /* A list without room leaves files out. Changes of those files do not make the measurement
         * stale. */
        if (k < CLT_TUNING_SOURCES)
            t->sources[k] = source;
    }
}

/* The result of trying a candidate. */
typedef enum tune_verdict {
    TIMED,
    WRONG,  /* its output is wrong */
    FAILED, /* it failed to compile or to run; clt_error_message says why */
    SAME    /* it has the kernels of an earlier candidate */
} tune_verdict;

/* State of measuring a class, kept from candidate to candidate. */
typedef struct class_trial {
    clt_outcome right;       /* outputs of the plan's own choice for the whole batch */
    clt_outcome reference;   /* outputs of portable kernels for part of the batch; empty: unknown */
    int64_t of_reference;    /* number of images of the reference */
    clt_outcome magnitudes;  /* magnitudes of the reference's sums; empty: it has none */
    double share, all_share; /* largest difference as a share of magnitudes, for the part and for
                                the whole batch */
    bool own_is_wrong;       /* candidates are compared with the reference if true */
    bool other;              /* a candidate beat the plan's own choice */
    uint64_t *programs;      /* hashes of the programs of candidates so far */
    int count, room;
} class_trial;

/* Whether the failure concerns one candidate. Other failures end the whole run. */
static bool is_candidates(clt_status status)
{
    return status == CLT_BUILD || status == CLT_OPENCL || status == CLT_UNSUPPORTED ||
           status == CLT_OUT_OF_DEVICE_MEMORY;
}

/* Sets *new to whether no earlier candidate had the node's present program. */
static clt_status note_program(tuner *t, class_trial *trial, bool *new)
{
    const uint64_t hash = clt_program_hash(&t->lab.plan->nodes[t->node].program);
    *new = true;
    for (int i = 0; i < trial->count; i++)
        *new &= trial->programs[i] != hash;
    return *new ? CLT_PUSH(trial->programs, trial->count, trial->room, hash) : CLT_OK;
}

/* Sets *right to whether the node in the present plan computes trial->reference. `spoilt`: a test
 * damages the output first. */
static clt_status agrees(tuner *t, const class_trial *trial, bool spoilt, bool *right)
{
    const int64_t all = t->lab.run.count;
    clt_outcome own;
    t->lab.run.count = trial->of_reference;
    const clt_status status = clt_outcome_read(&t->lab, t->node, true, &own);
    t->lab.run.count = all;
    if (spoilt)
        clt_testing_spoil(&own);
    *right = status == CLT_OK &&
             clt_outcome_equal(&own, &trial->reference, &trial->magnitudes, trial->share);
    clt_outcome_drop(&own);
    return status;
}

static clt_status equals_own(tuner *t, const class_trial *trial, bool spoilt, bool *right)
{
    clt_outcome own;
    const clt_status status = clt_outcome_read(&t->lab, t->node, false, &own);
    if (spoilt)
        clt_testing_spoil(&own);
    *right = status == CLT_OK &&
             clt_outcome_equal(&own, &trial->right, &trial->magnitudes, trial->all_share);
    clt_outcome_drop(&own);
    return status;
}

static clt_status judge(tuner *t, const clt_tuning_entry *entry, class_trial *trial,
                        double *seconds, tune_verdict *verdict)
{
    bool new, right;
    note_files(t);
    CLT_TRY(note_program(t, trial, &new));
    *verdict = SAME;
    if (!new)
        return CLT_OK;
    if (clt_testing_chose(clt_tuning_testing_skips, entry))
        clt_testing_skip_half(&t->lab.plan->nodes[t->node].program, t->lab.run.count);
    const bool spoilt = clt_testing_chose(clt_tuning_testing_spoils, entry);
    CLT_TRY(trial->own_is_wrong ? agrees(t, trial, spoilt, &right)
                                : equals_own(t, trial, spoilt, &right));
    *verdict = right ? TIMED : WRONG;
    if (right)
        CLT_TRY(time_node(t, seconds));
    if (clt_testing_chose(clt_tuning_testing_flatters, entry))
        *seconds /= 100;
    return CLT_OK;
}

/* Makes a plan with the candidate for the node's class, and judges it. */
static clt_status try(tuner *t, clt_tuning_entry *entry, class_trial *trial, double *seconds,
                      tune_verdict *verdict)
{
    clt_status status = CLT_OK;
    if (clt_testing_chose(clt_tuning_testing_breaks, entry))
        status = clt_fail(CLT_BUILD, "a test's kernel does not build");
    CLT_NEXT(status, plan_with(t, entry));
    CLT_NEXT(status, judge(t, entry, trial, seconds, verdict));
    if (!is_candidates(status))
        return status;
    *verdict = FAILED;
    char why[512];
    snprintf(why, sizeof why, "%s", clt_error_message());
    CLT_TRY(plan_with(t, NULL));
    return clt_error_set(CLT_OK, why);
}

static clt_status time_entry(tuner *t, clt_tuning_entry *entry, double *least)
{
    double seconds;
    CLT_TRY(plan_with(t, entry));
    CLT_TRY(time_node(t, &seconds));
    if (seconds < *least)
        *least = seconds;
    return CLT_OK;
}

/* Measures the best candidate and the plan's own choice again by turns. The best of many
 * measurements is also the luckiest, so it is kept only if it is faster again. */
static clt_status confirm(tuner *t, clt_tuning_entry *own, clt_tuning_entry *best)
{
    double plain = INFINITY, chosen = INFINITY;
    for (int i = 0; i < CONFIRMATIONS; i++) {
        CLT_TRY(time_entry(t, own, &plain));
        CLT_TRY(time_entry(t, best, &chosen));
    }
    own->seconds = plain;
    if (chosen < GAIN * plain)
        best->seconds = chosen;
    else
        *best = *own;
    best->plain_seconds = plain;
    return CLT_OK;
}

static void reject(const tuner *t, const clt_tuning_entry *e, tune_verdict verdict, char *list,
                   size_t room)
{
    /* Entries are added while there is room. */
    char text[sizeof e->variant + sizeof e->options + 4];
    snprintf(text, sizeof text, "%s%s %s", *list ? "; " : "", e->variant, e->options);
    if (!strstr(list, text) && strlen(list) + strlen(text) < room)
        strcat(list, text);
    const char *label = clt_device_label(t->lab.device);
    if (verdict == WRONG)
        clt_log(CLT_LOG_WARN, "%s: variant %s %s of %s gives a wrong result for %s: not used",
                label, e->variant, e->options, e->op, e->shape_class);
    else
        clt_log(CLT_LOG_WARN, "%s: variant %s %s of %s fails for %s: not used: %s", label,
                e->variant, e->options, e->op, e->shape_class, clt_error_message());
}

/* Tries one candidate, which replaces *best if it is faster. */
static clt_status contest(tuner *t, clt_tuning_entry *entry, class_trial *trial,
                          clt_tuning_entry *best)
{
    double own = INFINITY;
    tune_verdict verdict = SAME;
    CLT_TRY(try(t, entry, trial, &own, &verdict));
    t->report->candidates += verdict != SAME;
    if (verdict == WRONG || verdict == FAILED) {
        t->report->rejected++;
        reject(t, entry, verdict, best->rejected, sizeof best->rejected);
    } else if (verdict == TIMED && own < GAIN * best->seconds) {
        char rejected[sizeof best->rejected];
        memcpy(rejected, best->rejected, sizeof rejected);
        *best = *entry;
        best->seconds = own;
        trial->other = true;
        memcpy(best->rejected, rejected, sizeof rejected);
    }
    return CLT_OK;
}

/* Compares the plan's own choice with portable kernels, because every candidate is compared with
 * this choice. Does nothing if there are no portable kernels, or if they would take longer than the
 * time left. */
static clt_status check_own(tuner *t, const clt_tuning_entry *plain, class_trial *trial, char *list,
                            size_t room)
{
    static const double SLOWEST =
        1e9; /* floating-point operations a second that portable kernels reach at least */
    const clt_node *node = t->lab.plan->nodes[t->node].node;
    const char *label = clt_device_label(t->lab.device);
    bool right;
    if (!clt_reference_exists(node, &t->lab))
        return CLT_OK;
    trial->of_reference = clt_reference_count(node, &t->lab);
    const double seconds = clt_node_flops(node, trial->of_reference) / SLOWEST;
    if (seconds > 1 && seconds > t->deadline - clt_clock()) {
        clt_log(CLT_LOG_INFO,
                "%s: %s for %s is not compared with the portable kernels, which would take about "
                "%.0f s",
                label, plain->op, plain->shape_class, seconds);
        return CLT_OK;
    }
    const int64_t all = t->lab.run.count;
    t->lab.run.count = trial->of_reference;
    clt_status status = clt_reference_read(&t->lab, t->node, &trial->reference);
    if (status == CLT_OK && clt_reference_sums(node)) {
        status = clt_reference_magnitudes(&t->lab, t->node, &trial->magnitudes);
        trial->share = clt_reference_share(node, trial->of_reference);
        trial->all_share =
            clt_reference_share(node, all) * (double)all / (double)trial->of_reference;
    }
    t->lab.run.count = all;
    if (is_candidates(status)) {
        clt_log(CLT_LOG_WARN, "%s: %s for %s is not compared with the portable kernels: %s", label,
                plain->op, plain->shape_class, clt_error_message());
        return CLT_OK;
    }
    CLT_TRY(status);
    const bool spoilt = clt_testing_chose_op(clt_tuning_testing_spoils_own, plain->op);
    CLT_TRY(agrees(t, trial, spoilt, &right));
    trial->own_is_wrong = !right;
    if (right)
        return CLT_OK;
    t->report->rejected++;
    reject(t, plain, WRONG, list, room);
    return CLT_OK;
}

/* Tries the candidates of the list in turn until time is over. The first is the plan's own choice.
 * The reference, if there is one, stands behind the list and is tried if that choice is wrong.
 * `known`: the result of an earlier run that came as far as known->tried; NULL: there is none. */
static clt_status try_all(tuner *t, const candidate *list, int count, bool reference,
                          const clt_tuning_entry *known, class_trial *trial,
                          clt_tuning_entry *plain, clt_tuning_entry *best)
{
    bool new;
    double seconds;
    CLT_TRY(clt_outcome_read(&t->lab, t->node, false, &trial->right));
    CLT_TRY(note_program(t, trial, &new));
    CLT_TRY(time_node(t, &seconds));
    note_files(t);
    *plain = entry_of(t, &t->lab.plan->nodes[t->node], &list[0]);
    plain->seconds = plain->plain_seconds = seconds;
    *best = *plain;
    if (known)
        memcpy(best->rejected, known->rejected, sizeof best->rejected);
    CLT_TRY(check_own(t, plain, trial, best->rejected, sizeof best->rejected));
    if (trial->own_is_wrong)
        best->seconds = INFINITY;
    if (trial->own_is_wrong && reference) {
        clt_tuning_entry entry = entry_of(t, &t->lab.plan->nodes[t->node], &list[count]);
        CLT_TRY(contest(t, &entry, trial, best));
    }
    int i = 1;
    if (known && known->tried < count) {
        clt_tuning_entry entry = *known;
        i = known->tried;
        CLT_TRY(contest(t, &entry, trial, best));
    }
    for (bool first = true; i < count && (first || !over(t)); i++, first = false) {
        /* The plan may have been made anew, with the same nodes. */
        clt_tuning_entry entry = entry_of(t, &t->lab.plan->nodes[t->node], &list[i]);
        CLT_TRY(contest(t, &entry, trial, best));
    }
    best->tried = i < count ? i : 0;
    return CLT_OK;
}

/* Finds the entry of an earlier run that ran out of time in this class. */
static const clt_tuning_entry *unfinished(const tuner *t, const clt_plan_node *pn)
{
    const clt_target target = target_of(t);
    const clt_tuning_entry *e = clt_tuning_find(t->record, pn->node->op->name, pn->key, "");
    return e && e->tried && e->variants == clt_variants_hash(pn->node, &target) ? e : NULL;
}

/* Measures the class of the job's node. The record gets the best candidate, or the plan's own
 * choice. */
static clt_status tune_class(tuner *t, const job *j)
{
    candidate *list = NULL;
    int count = 0;
    bool reference;
    class_trial trial = {.programs = NULL};
    clt_tuning_entry best = {0}, plain = {0}, before;
    t->node = j->node;
    memset(t->sources, 0, sizeof t->sources);
    CLT_TRY(plan_with(t, NULL));
    const clt_plan_node *pn = &t->lab.plan->nodes[t->node];
    const clt_tuning_entry *known = unfinished(t, pn);
    if (known)
        before = *known;
    clt_status status = list_candidates(t, pn, &list, &count, &reference);
    if (status == CLT_OK && count)
        status = try_all(t, list, count, reference, known ? &before : NULL, &trial, &plain, &best);
    clt_free(list);
    clt_outcome_drop(&trial.right);
    clt_outcome_drop(&trial.reference);
    clt_outcome_drop(&trial.magnitudes);
    clt_free(trial.programs);
    const int tried = best.tried;
    char rejected[sizeof best.rejected];
    memcpy(rejected, best.rejected, sizeof rejected);
    if (status == CLT_OK && trial.other && !trial.own_is_wrong)
        status = confirm(t, &plain, &best);
    CLT_TRY(status);
    best.plain_seconds = plain.seconds;
    if (trial.own_is_wrong && !trial.other) {
        best.seconds = plain.seconds;
        clt_log(CLT_LOG_WARN,
                "%s: no kernel of %s that was tried agrees with the portable one for %s",
                clt_device_label(t->lab.device), plain.op, plain.shape_class);
    }
    t->report->measured++;
    t->report->unfinished += tried != 0;
    best.tried = tried;
    memcpy(best.rejected, rejected, sizeof rejected);
    memcpy(best.sources, t->sources, sizeof best.sources);
    return count ? clt_tuning_put(t->record, &best) : CLT_OK;
}

/* --- the plan -------------------------------------------------------------------------------- */

static bool listed(const tuner *t, const job *jobs, int count, const clt_plan_node *pn)
{
    for (int i = 0; i < count; i++) {
        const clt_plan_node *other = &t->lab.plan->nodes[jobs[i].node];
        if (other->node->op == pn->node->op && other->key == pn->key)
            return true;
    }
    /* A variant that --variant names leaves no choice: it would be measured for every candidate. */
    if (clt_variant_wanted(pn->node->op, t->options.variants))
        return true;
    const clt_target target = target_of(t);
    const clt_tuning_entry *known = clt_tuning_find(t->record, pn->node->op->name, pn->key, "");
    return known && !known->tried && known->variants == clt_variants_hash(pn->node, &target) &&
           !(known->shipped && t->limits->anew);
}

static int longest_first(const void *a, const void *b)
{
    const job *s = a, *t = b;
    const double x = s->seconds, y = t->seconds;
    if (s->choice != t->choice)
        return s->choice ? -1 : 1;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Whether the node is the first of a class that is measured (*choice) or only compared. */
static clt_status is_job(const tuner *t, const job *jobs, int count, const clt_plan_node *pn,
                         bool *is, bool *choice)
{
    candidate *list = NULL;
    int n = 0;
    bool reference;
    *is = *choice = false;
    if (pn->node->op->view || listed(t, jobs, count, pn))
        return CLT_OK;
    const clt_status status = list_candidates(t, pn, &list, &n, &reference);
    const bool compared = n == 1 && clt_reference_exists(pn->node, &t->lab) &&
                          !clt_reference_is(pn->node, list->variant);
    clt_free(list);
    *choice = n > 1;
    *is = *choice || compared;
    return status;
}

/* Lists classes that were not measured: first the classes with a choice, then those that are only
 * compared, each by falling time. Nodes run in order, so that each finds its operands. */
static clt_status list_jobs(tuner *t, job **jobs, int *count)
{
    int room = 0;
    for (int i = 0; i < t->lab.plan->n_nodes; i++) {
        job j = {.node = i};
        bool is;
        clt_timing once;
        CLT_TRY(is_job(t, *jobs, *count, &t->lab.plan->nodes[i], &is, &j.choice));
        if (!is) {
            CLT_TRY(clt_lab_run(&t->lab, i, i + 1));
            continue;
        }
        t->node = i;
        CLT_TRY(clt_time_calls(t->lab.device, enqueue, t, 1, 0, &once));
        j.seconds = once.median;
        CLT_TRY(CLT_PUSH(*jobs, *count, room, j));
    }
    if (*count)
        qsort(*jobs, (size_t)*count, sizeof **jobs, longest_first);
    return CLT_OK;
}

clt_status clt_tune_plan(const clt_graph *graph, clt_device *device,
                         const clt_plan_options *options, const clt_tune_limits *limits,
                         clt_tuning_record *record, clt_tune_report *report)
{
    tuner t = {
        .graph = graph, .options = *options, .record = record, .report = report, .limits = limits};
    job *jobs = NULL;
    int count = 0;
    *report = (clt_tune_report){0};
    /* Without this, a value may overwrite an operand that a candidate must read again. */
    t.options.repeatable = true;
    clt_status status = clt_lab_open(&t.lab, device, graph, options);
    CLT_NEXT(status, clt_lab_plan(&t.lab, graph, &t.options, record));
    CLT_NEXT(status, list_jobs(&t, &jobs, &count));
    report->classes += count;
    /* The time to compile the plan's own kernels does not count: they are needed anyway. */
    t.deadline = clt_clock() + limits->seconds;
    /* CLBlast's sets come first, because the classes are measured with them. Each set is a program
     * that CLBlast compiles. */
    if (status == CLT_OK && device->caps.clblast)
        status = clt_tune_blas(&t.lab, graph, &t.options, limits,
                               t.deadline - 0.75 * limits->seconds, record, report);
    for (int i = 0; status == CLT_OK && i < count && !over(&t); i++)
        status = tune_class(&t, &jobs[i]);
    clt_free(jobs);
    clt_lab_close(&t.lab);
    return status;
}
