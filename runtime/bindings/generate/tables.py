"""What the headers say in prose only. Rows that match no declaration are errors."""

# Arrays without a parameter or member beside them that counts their elements: (function or struct,
# name) -> the name that does, a number, or "?" and what the doc comment says.
DEVICES = "?devices of all ranks"
OWN_DEVICES = "?devices of this rank"
AXES = "?the rank of x"
MEANS = "?losses, then metrics"
LENGTHS = {
    ("clt_tensor_to_f32", "out"): "count",
    ("clt_tensor_to_i32", "out"): "count",
    ("clt_image_read", "out"): "?3 * size * size of the form",
    ("clt_split", "weights"): "parts",
    ("clt_split", "offsets"): "?parts + 1",
    ("clt_split_capacity", "weights"): "parts",
    ("clt_split_capacity", "capacity"): "parts",
    ("clt_data_order", "indices"): "count",
    ("clt_dataset_field_info", "shape"): "?CLT_DATA_MAX_RANK",
    ("clt_loader_desc", "weights"): "parts",
    ("clt_loader_desc", "bounds"): "?parts + 1",
    ("clt_dataset_push", "weights"): "?samples of the arrays",
    ("clt_loader_normalize", "mean"): "channels",
    ("clt_loader_normalize", "std"): "channels",
    ("clt_batch", "offsets"): "?parts + 1",
    ("clt_batch", "part_weights"): "?local parts",
    ("clt_batch", "indices"): "?samples of the local parts",
    ("clt_store_describe", "dims"): "?CLT_MAX_RANK",
    ("clt_trainer_options", "weights"): DEVICES,
    ("clt_step_batch", "offsets"): "?devices + 1",
    ("clt_step_batch", "loss_weights"): "?losses of the graph",
    ("clt_trainer_evaluate", "sums"): MEANS,
    ("clt_trainer_evaluate", "weights"): MEANS,
    ("clt_trainer_set_weights", "weights"): DEVICES,
    ("clt_split_change", "weights"): DEVICES,
    ("clt_fit_options", "mean"): "channels",
    ("clt_fit_options", "std"): "channels",
    ("clt_progress", "split"): "n_split",
    ("clt_evaluation", "names"): "count",
    ("clt_evaluation", "values"): "count",
    ("clt_evaluate", "sums"): MEANS,
    ("clt_evaluate", "weights"): MEANS,
    ("clt_evaluate_metrics", "sums"): MEANS,
    ("clt_evaluate_metrics", "weights"): MEANS,
    ("clt_metrics_confusion", "matrix"): "room",
    ("clt_cross_entropy_options", "class_weights"): "?classes",
    ("clt_model_input", "class_weights"): "?classes",
    ("clt_dataset_set_sample_weights", "weights"): "?samples of the data set",
    ("clt_local_sync", "samples"): "?trainers of this rank",
    ("clt_sync_report", "samples"): "replicas",
    ("clt_sync_report", "batches"): "replicas",
    ("clt_sync_report", "losses"): "replicas",
    ("clt_attribute", "choices"): "?ends with NULL",
    ("clt_operator_attributes", "returns"): "?ends with the name NULL",
    ("clt_setting", "integers"): "count",
    ("clt_setting", "reals"): "count",
    ("clt_apply", "results"): "?CLT_MAX_RESULTS",
    ("clt_apply_text", "results"): "?CLT_MAX_RESULTS",
    ("clt_transpose", "permutation"): AXES,
    ("clt_slice", "start"): AXES,
    ("clt_slice", "stop"): AXES,
    ("clt_slice", "step"): AXES,
    ("clt_pad", "before"): AXES,
    ("clt_pad", "after"): AXES,
    ("clt_split_with_sizes", "parts"): "count",
    ("clt_chunk", "parts"): "count",
    ("clt_planner_weights", "weights"): DEVICES,
    ("clt_split_frozen", "use"): OWN_DEVICES,
    ("clt_split_frozen", "weights"): DEVICES,
    ("clt_planner_predict", "use"): DEVICES,
    ("clt_predictor_output", "dims"): "?CLT_MAX_RANK",
    ("clt_predictor_input", "dims"): "?CLT_MAX_RANK",
    ("clt_comm_bridge", "first_ranks"): "?nodes",
    ("clt_comm_ranks", "devices"): "ranks",
    ("clt_comm_residual_get", "data"): "?elements of the residual",
    ("clt_comm_residual_set", "data"): "?elements of the residual",
    ("clt_measure_declined", "graphs"): "count",
}

# Pointers to one element that is read, where the declaration looks like an array or says nothing.
SINGLE = {("clt_loader_set_labels", "ignore"), ("clt_tensor_to_f32", "tensor"), ("clt_tensor_to_i32", "tensor")}

# Pointers to one scalar that is written, where the doc comment does not say *name.
WRITTEN_ONE = {
    ("clt_dataset_add_array", "out"),
    ("clt_dataset_find_field", "out"),
    ("clt_dataset_field_info", "sample_bytes"),
    ("clt_store_describe", "is_state"),
    ("clt_optimizer_parse", "optimizer"),
    ("clt_trainer_metric", "sum"),
    ("clt_trainer_metric", "weight"),
    ("clt_step_arrays", "loss"),
    ("clt_step_reservoir", "loss"),
    ("clt_trainer_restore", "seed"),
    ("clt_split_frozen_buckets", "bucket_bytes"),
    ("clt_meter_rate", "rate"),
    ("clt_device_kernel_count", "programs"),
    ("clt_device_kernel_count", "kernels"),
    ("clt_trainer_tuning", "classes"),
    ("clt_kernels_measure", "classes"),
}
# Names that are one scalar wherever they are written.
ALWAYS_ONE = {"dtype", "rank", "count", "quantum"}

# Handles without a function that frees them, and who owns them.
OWNERS = {"clt_value": "clt_graph", "clt_operator": "library", "clt_comm_request": "clt_comm",
          "clt_policy_run": "library"}

# Functions that free a handle, or an array of handles.
FREEING = ("_destroy", "_free", "_close", "_release", "_stop")

# What must outlive a handle, as the doc comments of the functions that create it say.
OUTLIVED_BY = {
    "clt_store": ["clt_device", "clt_world"],
    "clt_trainer": ["clt_store", "clt_world"],
    "clt_predictor": ["clt_store"],
    "clt_loader": ["clt_dataset"],
    "clt_dataset": ["clt_dataset"],  # parts
    "clt_local": ["clt_trainer", "clt_world"],
    "clt_meter": ["clt_device"],
    "clt_profile": ["clt_trainer"],
    "clt_value": ["clt_graph"],
    "clt_comm_request": ["clt_comm"],
    "clt_comm_residual": ["clt_comm"],
}

# Macros that are no constants.
NO_CONSTANTS = {"CLT_API", "CLT_BEGIN_DECLS", "CLT_END_DECLS"}
