"""What differs in Fortran from the C functions, and cannot be read from their declarations."""

# Headers whose functions the module leaves out, and why.
LEFT_OUT_HEADERS = {
    "cltrain/array.h": "arrays of Fortran describe themselves",
    "cltrain/async.h": "asynchronous runs are the command's",
    "cltrain/comm.h": "collectives on OpenCL buffers are for C",
    "cltrain/heartbeat.h": "heartbeat files are the launcher's",
    "cltrain/mpi.h": "module cltrain_mpi has it",
    "cltrain/planner.h": "plans of meshes are the command's",
    "cltrain/text.h": "texts for terminals are the command's",
    "cltrain/tokenizer.h": "tokens of texts are the command's",
    "cltrain/unstable.h": "it may change",
}

# Functions for policies of one's own, which cltrain_policies.f90 has.
POLICIES = ("clt_evaluation_value", "clt_policy_trainer", "clt_policy_stop", "clt_policy_keep", "clt_policy_lr",
            "clt_policy_set_lr")

# Functions that the module leaves out, and why.
BY_HAND = "written by steps.py"
LEFT_OUT = {
    "clt_error_message": "errmsg has the message",
    "clt_nearest": "for messages of C",
    "clt_world_init": "a world is a handle",
    **{name: "written in cltrain_policies.f90" for name in POLICIES},
    "clt_policy_init": "clt_policy_create makes policies",
    "clt_dataset_push": BY_HAND,
    "clt_trainer_gradients": BY_HAND,
    "clt_dataset_draw": "clt_step_reservoir draws",
    "clt_trainer_step": BY_HAND,
    "clt_trainer_forward": BY_HAND,
    "clt_trainer_evaluate": BY_HAND,
    "clt_trainer_predict": BY_HAND,
    "clt_trainer_backward_from": BY_HAND,
    "clt_predictor_run": BY_HAND,
    "clt_step_arrays": BY_HAND,
    "clt_predict_arrays": BY_HAND,
    "clt_step_batch_init": BY_HAND,
    "clt_constant": BY_HAND,
    "clt_tensor_copy_init": "clt_store_get_array and _set_array copy tensors",
    "clt_store_copy_out": "clt_store_get_array copies tensors",
    "clt_store_copy_in": "clt_store_set_array copies tensors",
    "clt_trainer_copy_out": "clt_trainer_gradient_array copies gradients",
    "clt_trainer_copy_in": "clt_trainer_set_gradient_array copies gradients",
    "clt_store_get": "clt_store_get_array takes any section",
    "clt_store_set": "clt_store_set_array takes any section",
    "clt_trainer_gradient": "clt_trainer_gradient_array takes any section",
    "clt_trainer_set_gradient": "clt_trainer_set_gradient_array takes any section",
    "clt_dataset_field_data": "gives a pointer of C",
    **{"clt_" + name: "steps take arrays; loops over loaders are for C" for name in (
        "loader_desc_init", "loader_create", "loader_add_output", "loader_normalize", "loader_set_labels",
        "loader_output_bytes", "loader_capacity", "loader_set_memory", "loader_memory", "loader_start",
        "batch_init", "loader_next", "loader_release", "loader_stats_init", "loader_get_stats", "loader_stop",
        "loader_free")},
    "clt_image_read": "the size of the result depends on the options",
    "clt_tensors_match": "for readers of files in C",
    "clt_tensor_init": "for writers of files in C",
    "clt_tensor_to_f32": "for readers of files in C",
    "clt_tensor_to_i32": "for readers of files in C",
    "clt_tensors_save": "clt_store_save writes files",
    "clt_tensors_desc_init": "clt_store_save writes files",
    "clt_checkpoint_save": "clt_trainer_save_state writes checkpoints",
    "clt_checkpoint_desc_init": "clt_trainer_save_state writes checkpoints",
    "clt_operator_attributes": "lists of C",
    "clt_operator_dim": "takes a character of C",
    "clt_attribute_allows": "lists of C",
    "clt_attribute_text": "lists of C",
    "clt_apply": "clt_apply_text takes the attributes as text",
}

# Structs of which functions change some members. The others stay as the program has set them.
IN_OUT = {("clt_layer_lstm", "layer"), ("clt_layer_gru", "layer"), ("clt_optimizer_defaults", "options")}

# Members of structs that do not reach the other side, and why.
LEFT_OUT_MEMBERS = {
}

# Structs that are handles in Fortran, and what frees them. Their members are for C.
OBJECTS = {"clt_world": "clt_world_close", "clt_policy": "clt_policy_destroy"}

# Structs that have no type in Fortran because nothing that is emitted needs them.
HAND_STRUCTS = {"clt_array", "clt_feed", "clt_fetch", "clt_step_batch",
                "clt_tensor_copy"}

# Names that would be another name's in Fortran, which ignores case.
RENAMED = {"CLT_STATE": "CLT_STATUS_STATE",
           "CLT_MODEL_IMAGES": "CLT_MODEL_TAKES_IMAGES", "CLT_MODEL_TEXT": "CLT_MODEL_TAKES_TEXT",
           "CLT_MODEL_ARRAYS": "CLT_MODEL_TAKES_ARRAYS"}

# Arguments that may be left out, beside options and operands that the schema calls optional.
OPTIONAL = {
    ("clt_devices_open", "list"), ("clt_freeze", "count"), ("clt_param_group", "count"),
    ("clt_shard", "count"), ("clt_file_names", "prefix"), ("clt_file_names", "ignored"),
    ("clt_fit", "test"), ("clt_local_fit", "test"), ("clt_trainer_set_use", "json"),
    ("clt_trainer_set_section", "text"), ("clt_dataset_add_array", "out"), ("clt_dataset_add_field", "out"),
   
    ("clt_split", "weights"), ("clt_split_capacity", "weights"),
    ("clt_slice", "step"),
    ("clt_mlp_regressor", "activation"), ("clt_apply_text", "attributes"),
    ("clt_world_count", "world"), ("clt_local_mesh", "mesh"), ("clt_trainer_save", "model"),
    ("clt_lstm", "h_n"), ("clt_lstm", "c_n"), ("clt_gru", "h_n"),
    ("clt_dataset_set_sample_weights", "weights"), ("clt_metrics_add", "weights"), ("clt_metrics_gather", "world"),
    ("clt_step_reservoir", "loss"), ("clt_trainer_set_reservoir", "reservoir"),
    ("clt_log_set", "fn"), ("clt_dataset_add_buffer", "out"), ("clt_device_adopt", "queue"),
    ("clt_trainer_restore", "position"), ("clt_trainer_restore", "seed"),
}
# Arguments that programs do not give. A data set of arrays copies them, because the compiler may have made
# a temporary of an argument. Fields with memory are arrays here, so clt_dataset_add_field is for callbacks.
FIXED = {
    ("clt_dataset_add_array", "ownership"): "CLT_DATA_COPY",
    ("clt_dataset_add_field", "data"): "c_null_ptr",
    ("clt_dataset_add_field", "ownership"): "CLT_DATA_BORROW",
}
# Functions all of whose outputs may be left out.
OPTIONAL_OUTPUTS = {"clt_dataset_field_info", "clt_store_describe", "clt_predictor_output",
                    "clt_predictor_input"}

# Arguments whose numbers are sizes of dimensions, in the order of C: they are reversed.
SHAPES = {"dims", "shape", "before", "after"}
# Numbers of dimensions: 0, 1, .. from the slowest in C; 1, 2, .. from the fastest here.
AXES = {"axis", "axes", "dim"}
# Ranks of results that exceed that of the first operand.
MORE_AXES = {"clt_stack": 1}

# Sizes that arrays of the program must have at least: an expression over arguments.
SIZES = {
    ("clt_split", "offsets"): "parts + 1",
    ("clt_evaluate", "sums"): "clt_f_number(trainer%id)",
    ("clt_evaluate", "weights"): "clt_f_number(trainer%id)",
    ("clt_evaluate_metrics", "sums"): "clt_f_number(trainer%id)",
    ("clt_evaluate_metrics", "weights"): "clt_f_number(trainer%id)",
    ("clt_dataset_set_sample_weights", "weights"): "c_clt_dataset_count(p_dataset)",
    ("clt_trainer_set_weights", "weights"): "1",
    ("clt_local_sync", "samples"): "1",
}

# What a handle remembers: an expression that the call computes.
NUMBERS = {"clt_trainer_create": "c_clt_graph_loss_count(p_graph) + c_clt_graph_metric_count(p_graph)"}


def optional(function, item, api):
    """Returns whether an argument may be left out."""
    name = function["name"]
    if (name, item["name"]) in OPTIONAL:
        return True
    if item["kind"] == "struct" and item["depth"] == 1 and item["direction"] == "in" and \
            item["name"].endswith("options") and api.struct[item["type"]]["init"]:
        return True
    if item["kind"] == "opencl" and item["direction"] == "out":
        return True
    if name in OPTIONAL_OUTPUTS and item["direction"] == "out":
        return True
    return item["name"] in optional_operands(name, api)


def optional_operands(name, api):
    """Returns the operands that the schema of an operator calls optional."""
    for row in api.operators:
        if row["function"] == name:
            return {operand["name"] for operand in row["operands"] if operand["optional"]}
    return set()

# Structs and functions of C that only the sources that are written by hand use.
C_STRUCTS = {"clt_step_batch", "clt_evaluation"}
C_FUNCTIONS = {"clt_trainer_step", "clt_trainer_forward", "clt_trainer_evaluate", "clt_trainer_predict",
               "clt_trainer_backward_from", "clt_predictor_run", "clt_step_batch_init", "clt_dataset_push",
               "clt_trainer_gradients", *POLICIES}

# Arguments that an object keeps using after the call.
KEEPERS = {"clt_trainer_set_reservoir": [("trainer", "reservoir")]}
