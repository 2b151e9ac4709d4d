/* What tests see of the choice of stages (clt_stages_choose). */
#ifndef CLT_TRAIN_SETUP_MEASURE_STAGES_H
#define CLT_TRAIN_SETUP_MEASURE_STAGES_H

#ifdef CLT_TESTING
/* Gets the work that the next choices go by, [stages][pieces]: see clt_stage_costs. NULL: it is not
 * wanted. */
extern double *clt_stages_testing_work;
#endif

#endif
